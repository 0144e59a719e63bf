//! Logs of a guest's kernel and of QEMU. Their last lines are kept for error reports.

use super::printable::printable;
use super::terminal::Terminal;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

/// The number of lines that are kept.
const LINES_MAX: usize = 40;
/// The number of bytes that are kept of a line. A guest that never ends a line costs no more
/// memory.
const LINE_MAX: usize = 400;

/// A source of names for the code addresses in a log, such as the symbols of a kernel.
pub(crate) trait Names: Debug + Send + Sync {
    /// Returns `line` with a name added after each address that has one, or unchanged if none has.
    fn annotate(&self, line: &str) -> String;
}

/// The last 40 lines of an untrusted stream of text, with at most 400 bytes of each.
#[derive(Debug)]
pub(crate) struct Log {
    name: &'static str,
    names: Option<Box<dyn Names>>,
    lines: Mutex<VecDeque<String>>,
}

impl Log {
    /// Returns an empty log without names for addresses. `name` is the prefix of its lines on the
    /// terminal.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            names: None,
            lines: Mutex::new(VecDeque::new()),
        }
    }

    /// Returns an empty log that adds names from `names`, if given, to the addresses in its lines.
    /// `name` is the prefix of its lines on the terminal.
    pub(crate) fn with_names(name: &'static str, names: Option<Box<dyn Names>>) -> Self {
        Self {
            names,
            ..Self::new(name)
        }
    }

    /// Reads `stream` until it ends or fails, and keeps its last lines. Shows each line on
    /// `terminal` if one is given. Control characters are made printable. A line of more than 400
    /// bytes counts as several lines.
    pub(crate) fn pump(&self, mut stream: impl Read, terminal: Option<&Terminal>) {
        let mut chunk = [0; 4096];
        let mut line = Vec::with_capacity(LINE_MAX);
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => {
                    for byte in &chunk[..read] {
                        if *byte == b'\n' || line.len() == LINE_MAX {
                            self.keep(&line, terminal);
                            line.clear();
                        }
                        if *byte != b'\n' {
                            line.push(*byte);
                        }
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if !line.is_empty() {
            self.keep(&line, terminal);
        }
    }

    /// Returns the last `count` kept lines, oldest first; fewer if fewer are kept. At most 40 lines
    /// are kept.
    pub(crate) fn last(&self, count: usize) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .skip(lines.len().saturating_sub(count))
            .cloned()
            .collect()
    }

    /// Returns the newest of the 40 kept lines that contains `text`. Returns `None` if no kept line
    /// contains it.
    pub(crate) fn last_with(&self, text: &str) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().rev().find(|line| line.contains(text)).cloned()
    }

    fn keep(&self, line: &[u8], terminal: Option<&Terminal>) {
        let mut text = printable(&String::from_utf8_lossy(line));
        if let Some(names) = &self.names {
            text = names.annotate(&text);
        }
        if let Some(terminal) = terminal {
            terminal.message(&format!("{}: {text}", self.name));
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_harmless_and_short() {
        let log = Log::new("kernel");
        let mut text = Vec::new();
        for line in 0..100 {
            text.extend_from_slice(format!("line {line}\r\n").as_bytes());
        }
        text.extend_from_slice(b"\x1b[2Jend\xff");
        log.pump(text.as_slice(), None);
        assert_eq!(log.last(3), ["line 98", "line 99", "end\u{fffd}"]);
        assert_eq!(log.last(1000).len(), LINES_MAX);

        let log = Log::new("kernel");
        log.pump([b'x'; 100_000].as_slice(), None);
        assert!(log.last(1000).iter().all(|line| line.len() <= LINE_MAX));
    }
}
