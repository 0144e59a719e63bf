//! The kernel's log: its last lines are kept for error reports.

use super::printable::printable;
use super::terminal::Terminal;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

/// Lines that are kept.
const LINES_MAX: usize = 40;
/// Bytes of a line that are kept; a guest that never ends a line costs no more.
const LINE_MAX: usize = 400;

/// Names for what a log tells by number.
pub(crate) trait Names: Debug + Send + Sync {
    /// The line with a name after each number that has one.
    fn annotate(&self, line: &str) -> String;
}

/// The last lines of a stream of text that nobody trusts.
#[derive(Debug)]
pub(crate) struct Log {
    name: &'static str,
    names: Option<Box<dyn Names>>,
    lines: Mutex<VecDeque<String>>,
}

impl Log {
    /// An empty log; `name` prefixes its lines where they are shown.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            names: None,
            lines: Mutex::new(VecDeque::new()),
        }
    }

    /// The same, with names for the addresses in it.
    pub(crate) fn with_names(name: &'static str, names: Option<Box<dyn Names>>) -> Self {
        Self {
            names,
            ..Self::new(name)
        }
    }

    /// Reads `stream` to its end. Lines are shown on `terminal` as they come, if one is given.
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

    /// The last `count` lines, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .skip(lines.len().saturating_sub(count))
            .cloned()
            .collect()
    }

    /// The last line that is kept and has `text` in it.
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
