//! Drives `ebb blk` and `qemu-storage-daemon` in turn, with the same requests on the same images,
//! and prints a table:
//!
//!     cargo run --release -p ebb-blk --example drive -- --ebb target/release/ebb
//!
//! A RAM-backed image lies on tmpfs, a file-backed one in the folder given by `--folder`. Both
//! back-ends use direct I/O and io_uring. Runs alternate between the two, so that whatever else
//! the machine does meets both; what is printed is the median of the runs.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes and ranks that are small and positive"
)]

#[path = "../tests/frontend/mod.rs"]
mod frontend;

use frontend::{Client, DATA, Failed, IN, OUT, Request};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const IMAGE: u64 = 256 << 20;
const WARM_UP: Duration = Duration::from_millis(200);
/// How long a back-end may take to listen.
const START: Duration = Duration::from_secs(10);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Backend {
    Ebb,
    /// With a pool that keeps nothing: what a squeeze without end costs.
    EbbEmpty,
    Qemu,
}

/// One row's requests.
#[derive(Copy, Clone, Debug)]
struct Load {
    name: &'static str,
    kind: u32,
    bytes: u32,
    random: bool,
    depth: u64,
    /// Added to addresses in memory: what direct I/O cannot take in place.
    skew: u64,
}

const fn load(name: &'static str, kind: u32, bytes: u32, random: bool, depth: u64) -> Load {
    Load {
        name,
        kind,
        bytes,
        random,
        depth,
        skew: 0,
    }
}

const LOADS: [Load; 10] = [
    load("random read 4 KiB", IN, 4096, true, 1),
    load("random read 4 KiB", IN, 4096, true, 64),
    load("random write 4 KiB", OUT, 4096, true, 1),
    load("random write 4 KiB", OUT, 4096, true, 64),
    load("sequential read 128 KiB", IN, 128 << 10, false, 1),
    load("sequential read 128 KiB", IN, 128 << 10, false, 64),
    load("sequential write 128 KiB", OUT, 128 << 10, false, 1),
    load("sequential write 128 KiB", OUT, 128 << 10, false, 64),
    Load {
        skew: 1,
        ..load("random read 4 KiB, odd addresses", IN, 4096, true, 64)
    },
    Load {
        skew: 1,
        ..load(
            "sequential read 128 KiB, odd addresses",
            IN,
            128 << 10,
            false,
            64,
        )
    },
];

struct Options {
    ebb: PathBuf,
    folder: PathBuf,
    runs: usize,
    run: Duration,
}

fn options() -> Result<Options, Failed> {
    let mut options = Options {
        ebb: "target/release/ebb".into(),
        folder: "target".into(),
        runs: 5,
        run: Duration::from_millis(1000),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} lacks its value"))?;
        match name.as_str() {
            "--ebb" => options.ebb = value.into(),
            "--folder" => options.folder = value.into(),
            "--runs" => options.runs = value.parse()?,
            "--run-ms" => options.run = Duration::from_millis(value.parse()?),
            _ => return Err(format!("{name}: there are --ebb, --folder, --runs, --run-ms").into()),
        }
    }
    Ok(options)
}

/// A back-end that runs, and dies with this value.
struct Served {
    child: Child,
    folder: PathBuf,
    ebb: Option<PathBuf>,
}

impl Served {
    fn start(which: Backend, options: &Options, image: &Path) -> Result<Self, Failed> {
        let folder =
            std::env::temp_dir().join(format!("ebb-drive-{}-{which:?}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let socket = folder.join("d.sock");
        let mut command = match which {
            Backend::Ebb | Backend::EbbEmpty => {
                let mut command = Command::new(&options.ebb);
                command.args(["blk", "serve", "--disk", &format!("d={}", image.display())]);
                command.arg("--control").arg(folder.join("control.sock"));
                command
            }
            Backend::Qemu => {
                let mut command = Command::new("qemu-storage-daemon");
                let file = image.display();
                command.args([
                    "--blockdev",
                    &format!(
                        "driver=file,node-name=f,filename={file},cache.direct=on,aio=io_uring"
                    ),
                ]);
                command.args(["--export", &format!(
                    "type=vhost-user-blk,id=e,node-name=f,writable=on,addr.type=unix,addr.path={}",
                    socket.display()
                )]);
                command
            }
        };
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let ebb = (which != Backend::Qemu).then(|| options.ebb.clone());
        let served = Self { child, folder, ebb };
        let started = Instant::now();
        while !socket.exists() {
            if started.elapsed() > START {
                return Err(format!("{which:?} does not start").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if which == Backend::EbbEmpty {
            served.command(&["set", "max_buffer_pages=0"])?;
        }
        Ok(served)
    }

    fn connect(&self) -> Result<Client, Failed> {
        Client::connect(UnixStream::connect(self.folder.join("d.sock"))?, 1)
    }

    /// Kibibytes of memory of the process's own: neither its program nor the guest's memory.
    fn anonymous_kib(&self) -> Result<u64, Failed> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(number.ok_or("no RssAnon")?.trim().parse()?)
    }

    /// Has an `ebb blk` give its pool back. Others have no way to.
    fn squeeze(&self) -> Result<(), Failed> {
        self.command(&["squeeze"])?;
        // Longer than the shrink interval.
        std::thread::sleep(Duration::from_millis(150));
        Ok(())
    }

    /// Has `ebb blk` do something to the one that runs here, if one does.
    fn command(&self, arguments: &[&str]) -> Result<(), Failed> {
        let Some(ebb) = &self.ebb else {
            return Ok(());
        };
        let mut command = Command::new(ebb);
        command.arg("blk").args(arguments);
        let status = command
            .arg("--control")
            .arg(self.folder.join("control.sock"))
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{arguments:?} failed").into())
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[derive(Copy, Clone, Debug)]
struct Figures {
    iops: f64,
    median_us: f64,
    p99_us: f64,
    busy_kib: u64,
}

/// Places by a generator of our own, so that both see the same requests.
struct Places {
    state: u64,
    next: u64,
}

impl Places {
    fn sector(&mut self, load: &Load) -> u64 {
        let blocks = IMAGE / u64::from(load.bytes);
        let block = if load.random {
            // xorshift64.
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.state % blocks
        } else {
            self.next = (self.next + 1) % blocks;
            self.next
        };
        block * u64::from(load.bytes) / 512
    }
}

fn drive(served: &Served, load: &Load, run: Duration, seed: u64) -> Result<Figures, Failed> {
    let mut client = served.connect()?;
    let mut places = Places {
        state: seed,
        next: 0,
    };
    let mut began: Vec<Instant> = vec![Instant::now(); frontend::SLOTS.into()];
    let mut latencies = Vec::with_capacity(1 << 20);
    let span = (u64::from(load.bytes) + load.skew).next_multiple_of(4096);
    let start = Instant::now();
    let mut counted_from = None;
    let mut busy_kib = 0;
    let mut flying = 0;
    loop {
        let elapsed = start.elapsed();
        let over = elapsed >= WARM_UP + run;
        if over && flying == 0 {
            break;
        }
        if counted_from.is_none() && elapsed >= WARM_UP {
            counted_from = Some(Instant::now());
            latencies.clear();
            busy_kib = served.anonymous_kib()?;
        }
        let before = client.available(0);
        while !over && flying < load.depth {
            let sector = places.sector(load);
            let data = DATA + (latencies.len() as u64 + flying) % load.depth * span + load.skew;
            let slot = client.submit(
                0,
                Request {
                    kind: load.kind,
                    sector,
                    data,
                    bytes: load.bytes,
                },
            )?;
            began[usize::from(slot)] = Instant::now();
            flying += 1;
        }
        if client.available(0) != before {
            client.kick(0, before)?;
        }
        let mut answered = false;
        while let Some((slot, status, _)) = client.answer(0)? {
            if status != 0 {
                return Err(format!("status {status}").into());
            }
            if !over {
                latencies.push(began[usize::from(slot)].elapsed().as_secs_f64() * 1e6);
            }
            flying -= 1;
            answered = true;
        }
        if !answered {
            client.wait(0, 30)?;
        }
    }
    let seconds = run.as_secs_f64();
    counted_from.ok_or("nothing was counted")?;
    let iops = latencies.len() as f64 / seconds;
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let index = (latencies.len() as f64 * part) as usize;
        latencies
            .get(index.min(latencies.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    };
    Ok(Figures {
        iops,
        median_us: at(0.5),
        p99_us: at(0.99),
        busy_kib,
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Failed> {
    let options = options()?;
    let pid = std::process::id();
    for (kind, image) in [
        (
            "RAM (tmpfs)",
            PathBuf::from(format!("/dev/shm/ebb-drive-{pid}.img")),
        ),
        ("file", options.folder.join(format!("ebb-drive-{pid}.img"))),
    ] {
        let result = measure(&options, kind, &image);
        let _ = std::fs::remove_file(&image);
        result?;
    }
    Ok(())
}

fn measure(options: &Options, kind: &str, image: &Path) -> Result<(), Failed> {
    // Written whole: holes would be read without any device.
    std::fs::write(image, vec![0x5a_u8; IMAGE as usize])?;
    println!(
        "\n{kind}, {} MiB, median of {} runs of {:?}\n",
        IMAGE >> 20,
        options.runs,
        options.run
    );
    println!("| requests | depth | back-end | IOPS | of qsd's | median µs | 99 % µs | busy KiB |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut idle: BTreeMap<&str, u64> = BTreeMap::new();
    let mut squeezed: BTreeMap<&str, u64> = BTreeMap::new();
    let backends = [
        (Backend::Ebb, "ebb blk"),
        (Backend::Qemu, "qemu-storage-daemon"),
        (Backend::EbbEmpty, "ebb blk, max_buffer_pages=0"),
    ];
    let all = backends.map(|(which, _)| Served::start(which, options, image));
    let all: Vec<_> = all.into_iter().collect::<Result<_, _>>()?;
    for ((_, name), served) in backends.iter().zip(&all) {
        idle.insert(name, served.anonymous_kib()?);
    }
    for load in &LOADS {
        // Only what goes through the pool can tell what the pool is worth.
        let count = if load.skew == 0 { 2 } else { 3 };
        let mut figures: Vec<Vec<Figures>> = vec![vec![]; count];
        for run in 0..options.runs {
            for (which, served) in all.iter().take(count).enumerate() {
                let seed = 0x9e37_79b9_7f4a_7c15 ^ run as u64;
                figures[which].push(drive(served, load, options.run, seed)?);
            }
        }
        let row = |which: usize, pick: fn(&Figures) -> f64| {
            median(figures[which].iter().map(pick).collect())
        };
        let peer = row(1, |f| f.iops);
        for (which, (_, name)) in backends.iter().take(count).enumerate() {
            println!(
                "| {} | {} | {name} | {:.0} | {:.2} | {:.1} | {:.1} | {:.0} |",
                load.name,
                load.depth,
                row(which, |f| f.iops),
                row(which, |f| f.iops) / peer,
                row(which, |f| f.median_us),
                row(which, |f| f.p99_us),
                row(which, |f| f.busy_kib as f64),
            );
        }
    }
    println!(
        "\n| anonymous memory, KiB | idle at start | idle after | squeezed |\n|---|---|---|---|"
    );
    for ((_, name), served) in backends.iter().zip(&all) {
        let after = served.anonymous_kib()?;
        served.squeeze()?;
        squeezed.insert(name, served.anonymous_kib()?);
        println!("| {name} | {} | {after} | {} |", idle[name], squeezed[name]);
    }
    Ok(())
}
