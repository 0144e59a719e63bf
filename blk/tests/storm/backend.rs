//! A back-end in a process of its own.

use crate::player::DISK;
use ebb_blk::image::{Location, Spec};
use ebb_blk::server::{Disk, Options, Server};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variables that mark this process as the back-end and give the folder and the number
/// of its disks.
const FOLDER: &str = "EBB_STORM_FOLDER";
const DISKS: &str = "EBB_STORM_DISKS";
/// Maximum number of pressure events: ten minutes of them.
const EVENTS: u32 = 600_000;
const EVENT_INTERVAL: Duration = Duration::from_millis(1);

/// The resources of a process, from `/proc`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) anonymous_bytes: u64,
}

/// A running back-end, which is killed when this value is dropped.
pub(crate) struct Backend {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Backend {
    /// Starts a back-end and waits until all its disks accept connections.
    pub(crate) fn start(folder: &Path, disks: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_back_end_for_the_others", "--nocapture"])
            .env(FOLDER, folder)
            .env(DISKS, disks.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut backend = Self {
            child,
            orders,
            answers,
        };
        backend.hear("ready");
        backend
    }

    /// Starts a thousand pressure events a second.
    pub(crate) fn press(&mut self) {
        self.order("press");
    }

    /// Returns the resources of the process when there is no pressure and no front-end is
    /// connected.
    pub(crate) fn standing(&mut self) -> Standing {
        self.order("calm");
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let tasks = std::fs::read_dir(process.join("task")).unwrap();
        // The list includes io_uring's kernel workers, which come and go.
        let threads = tasks.filter_map(Result::ok).filter(|task| {
            let name = std::fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| !name.starts_with("iou-wrk"))
        });
        let rollup = std::fs::read_to_string(process.join("smaps_rollup")).unwrap();
        let line = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Anonymous:"));
        let kib: u64 = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        Standing {
            descriptors: std::fs::read_dir(process.join("fd")).unwrap().count(),
            threads: threads.count(),
            anonymous_bytes: kib * 1024,
        }
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a command and waits for its confirmation.
    fn order(&mut self, what: &str) {
        writeln!(self.orders, "{what}").unwrap();
        self.hear("done");
    }

    fn hear(&mut self, what: &str) {
        let mut line = String::new();
        // The test runner prints lines, too.
        while !line.trim_end().ends_with(what) {
            line.clear();
            let bytes = self.answers.read_line(&mut line).unwrap();
            assert_ne!(bytes, 0, "the back-end ended before it was {what}");
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the back-end until standard input ends, if this process was started as one.
pub(crate) fn serve_if_asked() {
    let (Some(folder), Ok(disks)) = (std::env::var_os(FOLDER), std::env::var(DISKS)) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let server = Server::new(Options::default());
    for index in 0..disks.parse().unwrap() {
        let path = folder.join(format!("d{index}.img"));
        if !path.exists() {
            std::fs::File::create(&path).unwrap().set_len(DISK).unwrap();
        }
        let disk = Disk {
            name: format!("d{index}"),
            spec: Spec {
                location: Location::Path(path),
                read_only: false,
                cached: false,
            },
            settings: Vec::new(),
        };
        server
            .listen(&disk, &folder.join(format!("d{index}.sock")))
            .unwrap();
    }
    println!("ready");
    let (registry, clock) = (server.registry().clone(), server.clock());
    let pressing = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        use std::sync::atomic::Ordering;
        let mut presses: Option<std::thread::ScopedJoinHandle<'_, ()>> = None;
        for line in std::io::stdin().lines().map_while(Result::ok) {
            // Relaxed: the thread is joined before anything depends on it.
            pressing.store(line == "press", Ordering::Relaxed);
            if let Some(thread) = presses.take() {
                thread.join().unwrap();
            }
            if line == "press" {
                let (registry, pressing) = (registry.clone(), &pressing);
                presses = Some(scope.spawn(move || {
                    let from = Instant::now();
                    for event in 1..=EVENTS {
                        if !pressing.load(Ordering::Relaxed) {
                            break;
                        }
                        registry.pressure(clock.now());
                        let next = from + EVENT_INTERVAL * event;
                        std::thread::sleep(next.saturating_duration_since(Instant::now()));
                    }
                }));
            } else {
                settle(&server);
            }
            println!("done");
        }
        pressing.store(false, Ordering::Relaxed);
    });
}

/// Waits until all front-ends have disconnected and all pools are empty.
fn settle(server: &Server) {
    let mut rounds = 0;
    loop {
        server.registry().pressure(server.clock().now());
        let busy = server.instances().values().any(|instance| {
            let figures = instance.figures();
            figures.connected || figures.pool.free + figures.pool.in_use > 0
        });
        if !busy {
            break;
        }
        rounds += 1;
        assert!(rounds < 30_000, "an instance does not come to rest");
        std::thread::sleep(Duration::from_millis(10));
    }
}
