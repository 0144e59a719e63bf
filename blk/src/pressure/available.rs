//! Compares `MemAvailable`, the kernel's estimate of the memory that programs can still get without
//! swapping, with a watermark.

use super::gate::Watermark;
use crate::time::Micros;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Maximum number of bytes read from a file of the kernel.
const MAX_TEXT: u64 = 64 << 10;

/// An open `/proc/meminfo`, and the watermark with which its `MemAvailable` is compared.
#[derive(Debug)]
pub struct Available {
    meminfo: File,
    total_bytes: u64,
    watermark: Watermark,
}

impl Available {
    /// Opens `/proc/meminfo` with a high watermark, [`Watermark::sampled`], for a caller that reads
    /// it at intervals: memory may shrink fast between two reads.
    ///
    /// # Errors
    /// Fails if `/proc/meminfo` cannot be read or lacks `MemTotal`.
    pub fn sampled() -> io::Result<Self> {
        Self::new(File::open("/proc/meminfo")?, Watermark::sampled)
    }

    /// Opens `/proc/meminfo` with a low watermark, [`Watermark::growth`], for a caller that reads
    /// it after each MiB by which pools grew.
    ///
    /// # Errors
    /// Fails if `/proc/meminfo` cannot be read or lacks `MemTotal`.
    pub fn growth() -> io::Result<Self> {
        Self::new(File::open("/proc/meminfo")?, Watermark::growth)
    }

    /// Reads `MemTotal` in bytes from `meminfo` and makes the watermark from it by `marks`. Fails
    /// if the file cannot be read or lacks `MemTotal`.
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

    /// Replaces the watermark by the high one for reads at intervals. It begins without pressure.
    pub(super) fn sample(&mut self) {
        self.watermark = Watermark::sampled(self.total_bytes);
    }

    /// Returns the number of available bytes below which memory counts as short.
    pub fn low_bytes(&self) -> u64 {
        self.watermark.low_bytes()
    }

    /// Reads `MemAvailable` at time `now` and compares it with the watermark. Returns whether a
    /// pressure event is due: memory is short and no event was [`Self::reported`] in the last
    /// second of the shortage. Returns `false` if the kernel does not give `MemAvailable`.
    ///
    /// # Errors
    /// Fails if `/proc/meminfo` cannot be read.
    pub fn look(&mut self, now: Micros) -> io::Result<bool> {
        let available = field_bytes(&read_again(&mut self.meminfo)?, "MemAvailable:");
        Ok(available.is_some_and(|bytes| self.watermark.observe(now, bytes)))
    }

    /// Notes that a due event was reported at `now`.
    pub(super) fn reported(&mut self, now: Micros) {
        self.watermark.reported(now);
    }
}

/// Returns the bytes in the line called `name`, of the form `MemAvailable:   12345 kB`. Returns
/// `None` if the line is missing or malformed.
fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Reads a file of `/proc` or a cgroup from its start, to get its current text, up to 64 KiB. Fails
/// if it cannot be read or is not UTF-8.
pub(super) fn read_again(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

/// A file in memory that replaces `/proc/meminfo` in tests.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
pub(super) mod fake {
    use super::*;
    use std::io::Write;

    /// Makes an empty file.
    pub(in super::super) fn meminfo() -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        File::from(rustix::fs::memfd_create("meminfo", flags).unwrap())
    }

    /// Writes `available_kib` as `MemAvailable`, in a machine of 1 GiB.
    pub(in super::super) fn set_available(mut file: &File, available_kib: u64) {
        file.seek(SeekFrom::Start(0)).unwrap();
        let text = format!("MemTotal: 1048576 kB\nMemAvailable: {available_kib:10} kB\n");
        file.write_all(text.as_bytes()).unwrap();
    }
}

#[cfg(test)]
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
        fake::set_available(&meminfo, 500_000);
        let mut available =
            Available::new(meminfo.try_clone().unwrap(), Watermark::growth).unwrap();
        assert_eq!(available.low_bytes(), 16 << 20);
        assert!(!available.look(Micros(1)).unwrap());
        fake::set_available(&meminfo, 16 << 10);
        assert!(!available.look(Micros(2)).unwrap(), "not below the mark");
        fake::set_available(&meminfo, (16 << 10) - 1);
        assert!(available.look(Micros(3)).unwrap());
    }
}
