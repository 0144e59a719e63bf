//! The host's side of the experiments with a balloon. Whenever a program reports that it has freed
//! memory, the balloon is inflated by the guest's free memory and deflated again, so that the host
//! gets the memory.

use super::schema::What;
use crate::qemu::Monitor;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// The phases of programs in which memory has just been freed.
const FREED: [&str; 2] = ["freed", "released"];
/// The bytes of free memory that are left to the guest. With less, a stock kernel starts to
/// reclaim.
const RESERVE_BYTES: u64 = 64 << 20;
/// The interval at which the balloon is polled while it inflates.
const EVERY: Duration = Duration::from_millis(20);
/// The time without growth after which the balloon counts as stuck.
const STUCK: Duration = Duration::from_secs(2);
/// The maximum time of inflating. The balloon is deflated after that in any case.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Inflates and deflates a guest's balloon when the program frees memory. A thread does this over a
/// second QMP monitor of QEMU. The thread ends after this is dropped, or at the first failure.
#[derive(Debug)]
pub(crate) struct Balloon {
    orders: Sender<u64>,
}

impl Balloon {
    /// Returns the arguments of `ebb run` that give QEMU a second QMP monitor, which listens at
    /// `socket`. They make QEMU run unconfined, since a confined one cannot listen at a path.
    pub(crate) fn arguments(socket: &Path) -> [String; 5] {
        let option = "--qemu-arg".to_owned();
        // QEMU writes a comma within a value as two.
        let path = socket.display().to_string().replace(',', ",,");
        [
            "--unconfined".to_owned(),
            option.clone(),
            "-qmp".to_owned(),
            option,
            format!("unix:{path},server=on,wait=off"),
        ]
    }

    /// Starts the thread that controls the balloon. It connects to `socket` when the program first
    /// reports freed memory, at which time QEMU has created the socket. If that or a command fails,
    /// the thread ends without a message.
    pub(crate) fn new(socket: PathBuf) -> Self {
        let (orders, taken) = mpsc::channel();
        thread::spawn(move || {
            // If this fails, no memory goes back, which the figures then show.
            let _ = work(&socket, &taken);
        });
        Self { orders }
    }

    /// Reads a line of the program's output. If it is the start of a phase after freeing memory and
    /// contains the guest's free memory, queues one inflation of the balloon. Ignores other lines.
    /// Does not wait.
    pub(crate) fn hear(&self, line: &str) {
        if let Ok(What::Phase {
            name,
            mem_free_kib: Some(kib),
            ..
        }) = serde_json::from_str(line)
            && FREED.contains(&name.as_str())
        {
            // The send fails if the thread has ended because the monitor failed.
            let _ = self.orders.send(whole(kib) << 10);
        }
    }
}

/// Converts KiB of a guest's memory to an integer. Such amounts are exact in an `f64`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded before"
)]
fn whole(kib: f64) -> u64 {
    kib.clamp(0.0, 1e12) as u64
}

/// Inflates and deflates the balloon for each amount of free bytes in `orders`.
fn work(socket: &Path, orders: &Receiver<u64>) -> io::Result<()> {
    let mut monitor = None;
    while let Ok(free) = orders.recv() {
        let monitor = match &mut monitor {
            Some(monitor) => monitor,
            none => none
                .insert(Monitor::connect(UnixStream::connect(socket)?).map_err(io::Error::other)?),
        };
        squeeze(monitor, free)?;
    }
    Ok(())
}

/// Inflates the balloon by `free` bytes minus the reserve, and deflates it again.
fn squeeze(monitor: &mut Monitor, free: u64) -> io::Result<()> {
    let full = monitor.balloon().map_err(io::Error::other)?;
    let goal = full.saturating_sub(free.saturating_sub(RESERVE_BYTES));
    monitor.set_balloon(goal).map_err(io::Error::other)?;
    let begun = Instant::now();
    let (mut least, mut grown) = (full, begun);
    loop {
        let left = monitor.balloon().map_err(io::Error::other)?;
        if left < least {
            (least, grown) = (left, Instant::now());
        }
        if left <= goal || grown.elapsed() > STUCK || begun.elapsed() > TIMEOUT {
            break;
        }
        thread::sleep(EVERY);
    }
    monitor.set_balloon(full).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn it_grows_by_what_is_free_and_is_let_go() {
        let socket = std::env::temp_dir().join(format!("ebb-balloon-{}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket");
        // A QEMU whose balloon reaches its target at once.
        let qemu = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let greeting = r#"{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}"#;
            writeln!(stream, "{greeting}").expect("it is read");
            let mut actual = 1_u64 << 30;
            let mut goals = Vec::new();
            for line in BufReader::new(stream.try_clone().expect("a copy")).lines() {
                let command: serde_json::Value =
                    serde_json::from_str(&line.expect("a line")).expect("JSON");
                let answer = match command["execute"].as_str() {
                    Some("query-balloon") => format!("{{\"actual\": {actual}}}"),
                    Some("balloon") => {
                        actual = command["arguments"]["value"].as_u64().expect("bytes");
                        goals.push(actual);
                        "{}".to_owned()
                    }
                    _ => "{}".to_owned(),
                };
                writeln!(stream, "{{\"return\": {answer}}}").expect("it is read");
                if goals.len() == 2 {
                    break;
                }
            }
            goals
        });
        let balloon = Balloon::new(socket.clone());
        for line in [
            "no JSON",
            r#"{"event": "phase", "name": "touched", "at_s": 1, "mem_free_kib": 1024}"#,
            r#"{"event": "phase", "name": "freed", "at_s": 1, "mem_free_kib": 589824}"#,
        ] {
            balloon.hear(line);
        }
        assert_eq!(qemu.join().expect("it answered"), [512 << 20, 1 << 30]);
        std::fs::remove_file(&socket).expect("it is there");
    }

    #[test]
    fn a_comma_in_a_path_does_not_end_it() {
        let words = Balloon::arguments(Path::new("/a,b/c"));
        assert_eq!(words[4], "unix:/a,,b/c,server=on,wait=off");
    }
}
