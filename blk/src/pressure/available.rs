//! The kernel's estimate of what programs can still have without swapping: `MemAvailable`.

use super::gate::Watermark;
use crate::time::Micros;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Longest file of the kernel's that is read here.
const MAX_TEXT: u64 = 64 << 10;

/// `MemAvailable` against marks.
#[derive(Debug)]
pub struct Available {
    meminfo: File,
    total_bytes: u64,
    watermark: Watermark,
}

impl Available {
    /// Marks that suit whoever looks at intervals: memory may go fast between two looks.
    ///
    /// # Errors
    /// If `/proc/meminfo` cannot be read or lacks `MemTotal`.
    pub fn sampled() -> io::Result<Self> {
        Self::new(File::open("/proc/meminfo")?, Watermark::sampled)
    }

    /// Marks that suit whoever looks after each MiB that pools grew by.
    ///
    /// # Errors
    /// As [`Self::sampled`].
    pub fn growth() -> io::Result<Self> {
        Self::new(File::open("/proc/meminfo")?, Watermark::growth)
    }

    pub(super) fn new(mut meminfo: File, marks: fn(u64) -> Watermark) -> io::Result<Self> {
        let text = read_again(&mut meminfo)?;
        let total_bytes = field_bytes(&text, "MemTotal:")
            .ok_or_else(|| io::Error::other("/proc/meminfo has no MemTotal"))?;
        Ok(Self {
            meminfo,
            total_bytes,
            watermark: marks(total_bytes),
        })
    }

    /// From now on it is looked at intervals.
    pub(super) fn sample(&mut self) {
        self.watermark = Watermark::sampled(self.total_bytes);
    }

    /// The mark below which memory is tight.
    pub fn low_bytes(&self) -> u64 {
        self.watermark.low_bytes()
    }

    /// Looks. Says whether memory is tight, and that is an event. A kernel that does not say
    /// `MemAvailable` says nothing.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn look(&mut self, now: Micros) -> io::Result<bool> {
        let available = field_bytes(&read_again(&mut self.meminfo)?, "MemAvailable:");
        Ok(available.is_some_and(|bytes| self.watermark.observe(now, bytes)))
    }
}

/// The bytes of a line like `MemAvailable:   12345 kB`.
fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The text of a file of the kernel's, which says something else each time.
pub(super) fn read_again(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

/// A file in memory that stands in for the kernel's.
#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
pub(super) mod fake {
    use super::*;
    use std::io::Write;

    pub(in super::super) fn meminfo() -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        File::from(rustix::fs::memfd_create("meminfo", flags).unwrap())
    }

    pub(in super::super) fn say(mut file: &File, available_kib: u64) {
        file.seek(SeekFrom::Start(0)).unwrap();
        let text = format!("MemTotal: 1048576 kB\nMemAvailable: {available_kib:10} kB\n");
        file.write_all(text.as_bytes()).unwrap();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn kernel_text_is_read_as_it_is_written() {
        let meminfo = "MemTotal:       24683972 kB\nMemFree: 1 kB\nMemAvailable:   22860144 kB\n";
        assert_eq!(
            field_bytes(meminfo, "MemAvailable:"),
            Some(22_860_144 << 10)
        );
        assert_eq!(field_bytes(meminfo, "SwapTotal:"), None);
        assert_eq!(field_bytes("MemAvailable: many kB", "MemAvailable:"), None);
    }

    #[test]
    fn a_look_sees_what_the_file_says_now() {
        let meminfo = fake::meminfo();
        fake::say(&meminfo, 500_000);
        let mut available =
            Available::new(meminfo.try_clone().unwrap(), Watermark::growth).unwrap();
        assert_eq!(available.low_bytes(), 16 << 20);
        assert!(!available.look(Micros(1)).unwrap());
        fake::say(&meminfo, 16 << 10);
        assert!(!available.look(Micros(2)).unwrap(), "not below the mark");
        fake::say(&meminfo, (16 << 10) - 1);
        assert!(available.look(Micros(3)).unwrap());
    }
}
