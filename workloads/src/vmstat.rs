//! The counters of `/proc/vmstat`.

use crate::Failure;

/// The text of `/proc/vmstat` with all counters at one moment.
#[derive(Debug)]
pub(crate) struct Vmstat(String);

impl Vmstat {
    /// Reads all counters.
    ///
    /// # Errors
    /// [`Failure::System`] if the file cannot be read.
    pub(crate) fn read() -> Result<Self, Failure> {
        std::fs::read_to_string("/proc/vmstat")
            .map(Self)
            .map_err(Failure::system("/proc/vmstat"))
    }

    /// Returns the value of the counter `name`, counted since boot.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] if the kernel has no counter of this name.
    pub(crate) fn get(&self, name: &str) -> Result<u64, Failure> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
            .ok_or_else(|| Failure::Unsupported(format!("{name} in /proc/vmstat")))
    }

    /// Returns the number of frames that compaction has examined since boot, as movable frames or
    /// as free targets.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] if the kernel does not count them.
    pub(crate) fn scanned(&self) -> Result<u64, Failure> {
        Ok(self.get("compact_migrate_scanned")? + self.get("compact_free_scanned")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let vmstat = Vmstat(
            "compact_migrate_scanned_x 1\ncompact_migrate_scanned 2\ncompact_free_scanned 40\n"
                .to_owned(),
        );
        assert_eq!(
            vmstat.get("compact_migrate_scanned").expect("it is there"),
            2
        );
        assert_eq!(vmstat.scanned().expect("both are there"), 42);
        assert!(vmstat.get("compact").is_err());
    }
}
