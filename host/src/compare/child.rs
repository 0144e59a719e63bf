//! `ebb run …` as a child process: starting it, reading its output, and ending it. The child never
//! outlives this process.

use super::balloon::Balloon;
use super::meter::time_now;
use super::schema::Point;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The number of SIGTERM signals after which `ebb run` ends its VM unconditionally.
const SIGTERM_COUNT: u32 = 3;
/// The interval between these signals.
const SIGTERM_INTERVAL: Duration = Duration::from_millis(300);
/// The time after the last signal at which the child is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a line of output in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of lines that are queued until they are read.
const QUEUE: usize = 64;

/// A line that a child wrote to stdout, and when it arrived.
pub(super) struct Line {
    /// The line without its line break.
    pub(super) text: String,
    /// When the line arrived, in seconds of the timeline's clock, or `None` if unknown.
    pub(super) timeline_s: Option<f64>,
}

/// A line of output of a child, from [`listen`].
pub(super) enum Message {
    /// A line of stdout.
    Out(Line),
    /// A line of stderr.
    Err(String),
}

/// Starts `executable` with the arguments `words`, which are those of `ebb run …`. The child dies
/// with this process.
///
/// It is in a process group of its own, so that Ctrl-C does not reach it: this process ends it in
/// order. Stdout and stderr are pipes. With `turns` stdin is a pipe, too, else `/dev/null`. Fails
/// if the child cannot be started.
pub(super) fn spawn(executable: &Path, words: &[OsString], turns: bool) -> io::Result<Child> {
    let mut command = Command::new(executable);
    command
        .args(words)
        .stdin(if turns { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // `ebb run` passes this variable to the program, and no result may depend on the user's
        // terminal.
        .env("TERM", "dumb")
        .process_group(0);
    crate::system::orphan::forbid(&mut command);
    command.spawn()
}

/// Reads both outputs of the child in two threads, and returns a channel with their lines. The
/// channel closes when both outputs are closed. At most 64 lines are queued; then the child has to
/// wait.
///
/// `timeline` is the file of the run's timeline, from which the time of each line of stdout that
/// may be an event is read. `balloon` gets each line of stdout.
pub(super) fn listen(
    child: &mut Child,
    timeline: &Path,
    balloon: Option<Balloon>,
) -> Receiver<Message> {
    let (sender, receiver) = mpsc::sync_channel(QUEUE);
    if let Some(stdout) = child.stdout.take() {
        let (sender, timeline) = (sender.clone(), timeline.to_owned());
        thread::spawn(move || {
            each_line(stdout, |text| {
                // Only lines that may be events need a time.
                let timeline_s = text.starts_with('{').then(|| time_now(&timeline)).flatten();
                if let Some(balloon) = &balloon {
                    balloon.hear(&text);
                }
                sender.send(Message::Out(Line { text, timeline_s })).is_ok()
            });
        });
    }
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || each_line(stderr, |text| sender.send(Message::Err(text)).is_ok()));
    }
    receiver
}

/// Calls `take` with each line of `from`, without its line break, until the end, a read error, or
/// until `take` returns `false`. A line of more than 1 MiB is passed in parts. Invalid UTF-8 is
/// replaced.
pub(super) fn each_line(from: impl Read, mut take: impl FnMut(String) -> bool) {
    let mut reader = BufReader::new(from);
    loop {
        let mut bytes = Vec::new();
        match reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)
        {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&bytes);
                if !take(text.trim_end_matches(['\n', '\r']).to_owned()) {
                    return;
                }
            }
        }
    }
}

/// Returns the points of the timeline in the file `path`. Invalid lines are left out. Returns an
/// empty list if the file cannot be read.
pub(super) fn read_timeline(path: &Path) -> Vec<Point> {
    let text = std::fs::read(path).unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

/// Makes a child end: three SIGTERM signals at intervals of 300 ms, and SIGKILL 10 s after the
/// last.
#[derive(Debug, Default)]
pub(super) struct Terminator {
    sent: u32,
    sent_last: Option<Instant>,
    killed: bool,
}

impl Terminator {
    /// Sends `child` the next signal if its time has come, and does nothing otherwise. Does not
    /// wait. Call this repeatedly until the child has ended, and before its status is collected.
    pub(super) fn terminate(&mut self, child: &Child) {
        // The child has not been waited for, so its process number cannot belong to another
        // process.
        let pid = Pid::from_child(child);
        let since = self.sent_last.map_or(Duration::MAX, |last| last.elapsed());
        if self.sent < SIGTERM_COUNT && since >= SIGTERM_INTERVAL {
            let _ = kill_process(pid, Signal::TERM);
            self.sent += 1;
            self.sent_last = Some(Instant::now());
        } else if self.sent == SIGTERM_COUNT && since >= KILL_TIMEOUT && !self.killed {
            let _ = kill_process(pid, Signal::KILL);
            self.killed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_they_end() {
        let mut lines = Vec::new();
        each_line(&b"one\r\ntwo\n\nthree"[..], |line| {
            lines.push(line);
            true
        });
        assert_eq!(lines, ["one", "two", "", "three"]);
    }
}
