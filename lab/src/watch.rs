//! Runs one guest and watches it: its lines with the time they came, its resident memory over time.

use crate::Failure;
use crate::ram::Ram;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often resident memory is sampled: 25 times a second.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(40);
/// The longest line that a guest may print.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// Lines kept of one guest.
const MAX_LINES: usize = 100_000;

/// A line of a guest's output.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Since the guest was started.
    pub(crate) at: Duration,
    /// Resident memory at that moment, where the guest's RAM was found already.
    pub(crate) resident_bytes: Option<u64>,
    /// The text, without what ends a line.
    pub(crate) text: String,
}

/// Resident memory at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Since the guest was started.
    pub(crate) at: Duration,
    pub(crate) resident_bytes: u64,
}

/// All that was seen of one guest.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) lines: Vec<Line>,
    pub(crate) errors: Vec<Line>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) status: ExitStatus,
    /// From start to end.
    pub(crate) elapsed: Duration,
}

impl Record {
    /// The first line that contains `text`.
    pub(crate) fn line_with(&self, text: &str) -> Result<&Line, Failure> {
        self.lines
            .iter()
            .find(|line| line.text.contains(text))
            .ok_or_else(|| {
                let tail: Vec<_> = self
                    .lines
                    .iter()
                    .chain(&self.errors)
                    .map(|l| &*l.text)
                    .collect();
                let tail = tail[tail.len().saturating_sub(15)..].join("\n  ");
                Failure::Guest(format!(
                    "the guest ended ({}) without a line with {text:?}; its last lines:\n  {tail}",
                    self.status
                ))
            })
    }
}

/// A child that is killed when it is dropped while it runs.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only where the child is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long a guest may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) whole: Duration,
    /// Until a line with this text has come.
    pub(crate) ready: Option<(&'static str, Duration)>,
}

impl Limits {
    pub(crate) fn whole(whole: Duration) -> Self {
        Self { whole, ready: None }
    }
}

/// Runs `command` to its end.
///
/// `ram` is the guest's RAM, or a search for it that is repeated until it succeeds.
///
/// # Errors
/// [`Failure::Guest`] with the last lines, where the guest is not done within `limits`.
pub(crate) fn run(
    mut command: Command,
    ram: impl Fn(u32) -> Option<Ram>,
    limits: Limits,
) -> Result<Record, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let start = Instant::now();
    let child = command
        .spawn()
        .map_err(|e| Failure::io(format!("start {name}"), e))?;
    let mut child = Running(child);
    let found: Arc<OnceLock<Ram>> = Arc::default();
    let out = collect(child.0.stdout.take(), start, &found);
    let err = collect(child.0.stderr.take(), start, &found);
    let mut samples = Vec::new();
    let status = loop {
        if found.get().is_none()
            && let Some(ram) = ram(child.0.id())
        {
            // Nobody else sets it, so this cannot fail.
            let _ = found.set(ram);
        }
        if let Some(ram) = found.get() {
            samples.push(Sample {
                at: start.elapsed(),
                resident_bytes: ram.resident_bytes()?,
            });
        }
        match child
            .0
            .try_wait()
            .map_err(|e| Failure::io(format!("wait for {name}"), e))?
        {
            Some(status) => break Ok(status),
            None if start.elapsed() > limits.whole => break Err(limits.whole),
            None if limits.ready.is_some_and(|(text, limit)| {
                start.elapsed() > limit && !out.has_line_with(text)
            }) =>
            {
                break Err(start.elapsed());
            }
            None => std::thread::sleep(SAMPLE_INTERVAL),
        }
    };
    let elapsed = start.elapsed();
    drop(child);
    let (lines, errors) = (out.finish(), err.finish());
    match status {
        Ok(status) => Ok(Record {
            lines,
            errors,
            samples,
            status,
            elapsed,
        }),
        Err(limit) => {
            let tail: Vec<_> = lines.iter().chain(&errors).map(|l| &*l.text).collect();
            let tail = tail[tail.len().saturating_sub(15)..].join("\n  ");
            Err(Failure::TimedOut { name, limit, tail })
        }
    }
}

/// A thread that collects the lines of one stream.
struct Collector {
    lines: Arc<Mutex<Vec<Line>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Collector {
    fn has_line_with(&self, text: &str) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().any(|line| line.text.contains(text))
    }

    fn finish(mut self) -> Vec<Line> {
        if let Some(thread) = self.thread.take() {
            // A panic there is a defect that its own message has told already.
            let _ = thread.join();
        }
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn collect(
    stream: Option<impl Read + Send + 'static>,
    start: Instant,
    ram: &Arc<OnceLock<Ram>>,
) -> Collector {
    let lines: Arc<Mutex<Vec<Line>>> = Arc::default();
    let thread = stream.map(|stream| {
        let (lines, ram) = (Arc::clone(&lines), Arc::clone(ram));
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            for _ in 0..MAX_LINES {
                let mut bytes = Vec::new();
                match reader
                    .by_ref()
                    .take(MAX_LINE_BYTES)
                    .read_until(b'\n', &mut bytes)
                {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                let resident_bytes = ram.get().and_then(|ram| ram.resident_bytes().ok());
                let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                let line = Line {
                    at: start.elapsed(),
                    resident_bytes,
                    text,
                };
                lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
            }
        })
    });
    Collector { lines, thread }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_samples_and_status_are_recorded() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; sleep 0.2; exit 3"]);
        let record = run(
            command,
            |_| Ram::create(1 << 20).ok(),
            Limits::whole(Duration::from_secs(20)),
        )
        .expect("sh");
        assert_eq!(record.status.code(), Some(3));
        assert_eq!(record.lines[0].text, "one");
        assert_eq!(record.errors[0].text, "two");
        assert!(record.samples.len() >= 2);
        assert!(record.line_with("one").is_ok());
        assert!(
            record
                .line_with("three")
                .expect_err("no such line")
                .to_string()
                .contains("one")
        );
    }

    #[test]
    fn what_hangs_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let failure = run(command, |_| None, Limits::whole(Duration::from_millis(200)))
            .expect_err("too long");
        assert!(matches!(failure, Failure::TimedOut { .. }), "{failure}");
    }
}
