//! Sends the host's memory stalls to a guest.
//!
//! Linux counts in `/proc/pressure/memory` for how long tasks waited for memory. These totals are
//! read only while memory is tight. An event of [`super::pressure`] begins an episode, in which the
//! totals are read ten times a second. Growth is sent to the guest. The episode ends when the
//! totals have not grown for a second, so a quiet host wakes no guest.

use crate::streams::Control;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The file with the host's totals.
const PATH: &str = "/proc/pressure/memory";
/// More bytes than that file has.
const BYTES_MAX: usize = 512;
/// Interval between two readings in an episode.
const INTERVAL: Duration = Duration::from_millis(100);
/// An episode ends after this time without a stall.
const QUIET: Duration = Duration::from_secs(1);
/// Limit for the stalls before an episode, in microseconds. It is the smallest stall for which a
/// pressure trigger fires. Older stalls say nothing about the present.
const BEFORE_MAX_MICROS: u64 = 10_000;

/// Returns whether this host's kernel counts memory stalls in `/proc/pressure/memory`. Returns
/// `false` also if that file cannot be read.
pub(crate) fn are_told() -> bool {
    Stalls::open(Path::new(PATH)).is_ok()
}

/// Total stall times in microseconds: with some tasks stalled, and with all tasks stalled.
type Totals = [u64; 2];

/// The file with the host's totals.
#[derive(Debug)]
struct Stalls(File);

impl Stalls {
    fn open(path: &Path) -> io::Result<Self> {
        let stalls = Self(File::open(path)?);
        stalls.read()?;
        Ok(stalls)
    }

    /// Reads the totals.
    ///
    /// # Errors
    /// Fails with the host's error, or with `InvalidData` if the file does not have Linux's format.
    fn read(&self) -> io::Result<Totals> {
        let mut bytes = [0; BYTES_MAX];
        let len = self.0.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..len]);
        let total = |name| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.rsplit_once("total=")?.1.parse().ok()
        };
        let totals = total("some ").zip(total("full "));
        let (some, full) = totals.ok_or(io::ErrorKind::InvalidData)?;
        Ok([some, full])
    }
}

/// Sends the times for which tasks of the host waited for memory to one guest.
#[derive(Debug)]
pub(super) struct StallReporter {
    stalls: Stalls,
    to: Arc<Control>,
    /// The host's totals when they were last read.
    read: Totals,
    /// The totals that were sent to the guest, which count from 0.
    told: Totals,
    /// When the totals last grew. `None` outside of an episode.
    grew: Option<Instant>,
}

impl StallReporter {
    /// Prepares to send the host's memory stalls to the guest of `to`. Sends nothing yet. Returns
    /// `None` if the host does not count stalls, or if its totals cannot be read.
    pub(super) fn new(to: Arc<Control>) -> Option<Self> {
        Self::of(Path::new(PATH), to).ok()
    }

    fn of(path: &Path, to: Arc<Control>) -> io::Result<Self> {
        let stalls = Stalls::open(path)?;
        let read = stalls.read()?;
        Ok(Self {
            stalls,
            to,
            read,
            told: [0; 2],
            grew: None,
        })
    }

    /// Begins an episode of memory pressure at `now`, or extends the current one. Reads the totals
    /// and sends their growth since the last reading. If no episode was under way, at most 10 ms of
    /// each total are sent.
    pub(super) fn begin(&mut self, now: Instant) {
        let most = if self.grew.is_some() {
            u64::MAX
        } else {
            BEFORE_MAX_MICROS
        };
        self.grew = Some(now);
        self.look(now, most);
    }

    /// Returns the time after which to call [`Self::sample`], 100 ms. Returns `None` outside of an
    /// episode, when no sample is due.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.grew.map(|_| INTERVAL)
    }

    /// Reads the totals at `now` and sends their growth, if any. Ends the episode if they have not
    /// grown for a second.
    pub(super) fn sample(&mut self, now: Instant) {
        self.look(now, u64::MAX);
        if self
            .grew
            .is_some_and(|grew| now.duration_since(grew) >= QUIET)
        {
            self.grew = None;
        }
    }

    /// Reads the totals and sends their growth, at most `most` microseconds each.
    fn look(&mut self, now: Instant, most: u64) {
        // If the file cannot be read any more, no stalls are known.
        let Ok(totals) = self.stalls.read() else {
            return;
        };
        let before = self.told;
        for ((told, read), total) in self.told.iter_mut().zip(self.read).zip(totals) {
            *told += total.saturating_sub(read).min(most);
        }
        self.read = totals;
        if self.told != before {
            self.grew = Some(now);
            self.to.pressure(self.told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_wire::request::Request;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;

    fn write(path: &Path, some: u64, full: u64) {
        let averages = "avg10=0.00 avg60=0.00 avg300=0.00";
        let text = format!("some {averages} total={some}\nfull {averages} total={full}\n");
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn stalls_are_told_while_they_last() {
        let path = std::env::temp_dir().join(format!("ebb-stalls-{}", std::process::id()));
        write(&path, 1_000_000, 500);
        let control = Arc::new(Control::default());
        let (guest, host) = UnixStream::pair().unwrap();
        let pump = Arc::clone(&control);
        let pump = std::thread::spawn(move || pump.pump(host));
        let mut lines = BufReader::new(guest).lines();
        let mut told = || match Request::parse(&lines.next().unwrap().unwrap()) {
            Some(Request::Pressure { some, full }) => [some, full],
            other => panic!("{other:?}"),
        };
        let mut reporter = StallReporter::of(&path, Arc::clone(&control)).unwrap();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(reporter.wait(), None);
        // A minute of stalls outside of an episode is cut to the limit.
        write(&path, 61_000_000, 5_500);
        reporter.begin(at(0));
        assert_eq!(told(), [10_000, 5_000]);
        assert_eq!(reporter.wait(), Some(INTERVAL));
        write(&path, 61_070_000, 5_500);
        reporter.sample(at(100));
        assert_eq!(told(), [80_000, 5_000]);
        reporter.sample(at(1_099));
        assert!(reporter.wait().is_some());
        reporter.sample(at(1_100));
        assert_eq!(reporter.wait(), None);
        // During an episode an event sends all of the growth, like a sample.
        reporter.begin(at(5_000));
        write(&path, 61_970_000, 5_500);
        reporter.begin(at(5_500));
        assert_eq!(told(), [980_000, 5_000]);
        std::fs::remove_file(&path).unwrap();
        control.end();
        pump.join().unwrap();
    }

    #[test]
    fn a_file_that_is_not_linuxs_tells_nothing() {
        let path = std::env::temp_dir().join(format!("ebb-no-stalls-{}", std::process::id()));
        for text in [
            "",
            "some total=1\n",
            "some total=1\nfull total=-1\n",
            "some\nfull\n",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(Stalls::open(&path).is_err(), "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Stalls::open(&path).is_err());
    }
}
