//! Finds the OOM killer's victims in the kernel's log (`/dev/kmsg`).

use crate::control::Port;
use crate::system;
use ebb_wire::report::Report;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const LOG: &str = "/dev/kmsg";
/// Size of the longest record that the kernel writes, in bytes.
const RECORD_MAX: usize = 8192;
/// The text before a victim's process ID, and the text after its name.
const KILLED: &str = "Killed process ";
const NAME_END: &str = ") total-vm:";
/// Number of tries and the time between them, until the log has all victims that the kernel has
/// counted.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// A thread that reads the log and reports victims to the host.
#[derive(Debug)]
pub(crate) struct OomWatcher(Arc<Mutex<Reader>>);

#[derive(Debug)]
struct Reader {
    log: File,
    port: Port,
    told: u64,
    record: Vec<u8>,
}

impl OomWatcher {
    /// Starts the thread, which reads the log from its present end on and reports victims on
    /// `port`. Returns `None` if there is no log.
    pub(crate) fn watch(port: Port) -> Option<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut log = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(LOG)
            .ok()?;
        log.seek(SeekFrom::End(0)).ok()?;
        let waited = log.try_clone().ok()?;
        let reader = Arc::new(Mutex::new(Reader {
            log,
            port,
            told: 0,
            record: vec![0; RECORD_MAX],
        }));
        let shared = Arc::clone(&reader);
        thread::spawn(move || {
            loop {
                let ready = poll(&mut [PollFd::new(&waited, PollFlags::IN)], None);
                if ready.is_err_and(|errno| errno != rustix::io::Errno::INTR) {
                    return;
                }
                // After an error, `finish` tries once more.
                if drain(&shared).is_err() {
                    return;
                }
            }
        });
        Some(Self(reader))
    }

    /// Reports the victims that were not reported yet. Reads the log until it has as many victims
    /// as the kernel has counted, but waits no longer than about 50 ms for them. Call this when no
    /// other process is left.
    pub(crate) fn finish(&self) {
        let counted = system::oom_kills().unwrap_or(0);
        for _ in 0..TRIES {
            match drain(&self.0) {
                Ok(told) if told < counted => thread::sleep(PAUSE),
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// Reports the victims in the unread records. Returns the number of victims reported so far. Fails
/// if the log cannot be read.
fn drain(reader: &Mutex<Reader>) -> io::Result<u64> {
    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
    let Reader {
        log,
        port,
        told,
        record,
    } = &mut *reader;
    loop {
        match log.read(record) {
            Ok(0) => return Ok(*told),
            Ok(length) => {
                let text = String::from_utf8_lossy(&record[..length]);
                if let Some(report) = victim(&text) {
                    *told += 1;
                    // Fails if the host is gone.
                    let _ = port.say(report);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(*told),
            // Unread records were overwritten. The next read returns the oldest one left.
            Err(error)
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the victim that a record names, or `None` if it names none. A record has priority,
/// number, microseconds and flags, then `;` and the text. Programs may write to the log, but not
/// with facility 0, which is the kernel's.
fn victim(record: &str) -> Option<Report<'_>> {
    const KERNEL: u32 = 8;
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let microseconds: u64 = fields.nth(1)?.parse().ok()?;
    if priority >= KERNEL {
        return None;
    }
    let line = text.lines().next()?;
    let (_, killed) = line.split_once(KILLED)?;
    let (pid, rest) = killed.split_once(" (")?;
    // The program chose the name, so it may contain any bytes.
    let (name, figures) = rest.rsplit_once(NAME_END)?;
    let mut resident = 0u64;
    for part in figures.split(", ") {
        if let Some((kind, kibibytes)) = part.split_once("-rss:") {
            let kibibytes: u64 = kibibytes.strip_suffix("kB")?.parse().ok()?;
            if matches!(kind, "anon" | "file" | "shmem") {
                resident = resident.saturating_add(kibibytes.saturating_mul(1024));
            }
        }
    }
    Some(Report::OomKill {
        nanoseconds: microseconds.saturating_mul(1000),
        pid: pid.parse().ok()?,
        resident,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_victims() {
        let record = "3,511,2345678,-;Out of memory: Killed process 57 (a b) (c) total-vm:143360kB, \
            anon-rss:100000kB, file-rss:24kB, shmem-rss:4kB, UID:0 pgtables:300kB oom_score_adj:0\n \
            SUBSYSTEM=x\n";
        let told = Some(Report::OomKill {
            nanoseconds: 2_345_678_000,
            pid: 57,
            resident: 100_028 << 10,
            name: "a b) (c",
        });
        assert_eq!(victim(record), told);
        let group = record.replace("Out of memory", "Memory cgroup out of memory");
        assert_eq!(victim(&group), told);
        for other in [
            record.replacen('3', "12", 1),
            record.replace("57", "x"),
            record.replace("100000kB", "100000"),
            record.replace(") total-vm", " total-vm"),
            "6,1,2,-;Linux version 6.1".into(),
            "nonsense".into(),
            String::new(),
        ] {
            assert_eq!(victim(&other), None, "{other}");
        }
    }
}
