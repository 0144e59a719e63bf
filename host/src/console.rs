//! The kernel's log: its last lines are kept for error reports.

use crate::terminal::Terminal;
use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

/// Lines that are kept.
const LINES_MAX: usize = 40;
/// Bytes of a line that are kept; a guest that never ends a line costs no more.
const LINE_MAX: usize = 400;

/// The last lines of a stream of text that nobody trusts.
#[derive(Debug)]
pub(crate) struct Log {
    name: &'static str,
    lines: Mutex<VecDeque<String>>,
}

impl Log {
    /// An empty log; `name` prefixes its lines where they are shown.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            lines: Mutex::new(VecDeque::new()),
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
        // A guest must not steer the user's terminal, so control characters are shown, not sent.
        let text: String = String::from_utf8_lossy(line)
            .trim_end_matches('\r')
            .chars()
            .flat_map(|c| {
                let (escape, plain) = if c.is_control() && c != '\t' {
                    (Some(c.escape_default()), None)
                } else {
                    (None, Some(c))
                };
                escape.into_iter().flatten().chain(plain)
            })
            .collect();
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
        assert_eq!(log.last(3), ["line 98", "line 99", "\\u{1b}[2Jend\u{fffd}"]);
        assert_eq!(log.last(1000).len(), LINES_MAX);

        let log = Log::new("kernel");
        log.pump([b'x'; 100_000].as_slice(), None);
        assert!(log.last(1000).iter().all(|line| line.len() <= LINE_MAX));
    }
}
