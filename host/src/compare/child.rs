//! `ebb run …` as a child process: started so that it does not outlive us, listened to, ended.

use super::balloon::Balloon;
use super::meter::last_time;
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

/// Signals after which `ebb run` ends its VM whatever the program does, and their distance.
const INSISTENCE: u32 = 3;
const INSIST_EVERY: Duration = Duration::from_millis(300);
/// By then it has ended, or is killed.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Lines of a guest that wait until somebody listens to it again.
const QUEUE: usize = 64;

/// A line of a child, and where the timeline stood when it came.
pub(super) struct Line {
    pub(super) text: String,
    pub(super) timeline_s: Option<f64>,
}

/// What a child says.
pub(super) enum Message {
    Out(Line),
    Err(String),
}

/// Starts `ebb run …` so that it does not outlive us, out of reach of the terminal's Ctrl-C: the
/// guest that is under way is ended by us, in order.
pub(super) fn spawn(executable: &Path, words: &[OsString], turns: bool) -> io::Result<Child> {
    let mut command = Command::new(executable);
    command
        .args(words)
        .stdin(if turns { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // It is passed on to the program, and no run shall depend on where its user sits.
        .env("TERM", "dumb")
        .process_group(0);
    crate::system::orphan::forbid(&mut command);
    command.spawn()
}

/// Reads both outputs of the child in threads of their own.
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
                // Only of what may be an event does anybody ask when it came.
                let timeline_s = text
                    .starts_with('{')
                    .then(|| last_time(&timeline))
                    .flatten();
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

/// Hands over each line until the end, or until nobody wants more.
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

pub(super) fn read_timeline(path: &Path) -> Vec<Point> {
    let text = std::fs::read(path).unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

/// How a child is made to end.
#[derive(Debug, Default)]
pub(super) struct Insistence {
    told: u32,
    told_last: Option<Instant>,
    killed: bool,
}

impl Insistence {
    /// Asks the child to end; kills it once it has been asked often enough.
    pub(super) fn insist(&mut self, child: &Child) {
        // The child has not been waited for, so its number is still its own.
        let pid = Pid::from_child(child);
        let since = self.told_last.map_or(Duration::MAX, |last| last.elapsed());
        if self.told < INSISTENCE && since >= INSIST_EVERY {
            let _ = kill_process(pid, Signal::TERM);
            self.told += 1;
            self.told_last = Some(Instant::now());
        } else if self.told == INSISTENCE && since >= LAST_PATIENCE && !self.killed {
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
