//! The kernel's pools of huge pages: reads and sets their size, and enlarges one for a while.

use crate::clock::monotonic_ns;
use crate::{Failure, meminfo};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const DEFAULT: &str = "/proc/sys/vm/nr_hugepages";
/// The folder of all pools, with one folder for each page size.
const SIZES: &str = "/sys/kernel/mm/hugepages";
/// The size of a 1 GiB page in KiB.
pub(crate) const GIGANTIC_KIB: u64 = 1 << 20;

/// The kernel's pool of huge pages of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pool {
    /// The file with the number of its pages.
    file: PathBuf,
    page_kib: u64,
}

impl Pool {
    /// Returns the pool of the kernel's default huge page size.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] if the guest has no huge pages, [`Failure::Wrong`] if the pool's
    /// file has no number.
    pub(crate) fn of_the_default() -> Result<Self, Failure> {
        let page_kib = meminfo::kib("Hugepagesize").ok_or_else(|| {
            Failure::Unsupported("huge pages (Hugepagesize in /proc/meminfo)".to_owned())
        })?;
        Self::at(PathBuf::from(DEFAULT), page_kib)
    }

    /// Returns the pool of pages of `page_kib` KiB.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] if the guest has no huge pages of that size, [`Failure::Wrong`] if
    /// the pool's file has no number.
    pub(crate) fn of(page_kib: u64) -> Result<Self, Failure> {
        let file = PathBuf::from(format!("{SIZES}/hugepages-{page_kib}kB/nr_hugepages"));
        Self::at(file, page_kib)
    }

    fn at(file: PathBuf, page_kib: u64) -> Result<Self, Failure> {
        let pool = Self { file, page_kib };
        pool.pages().map(|_| pool)
    }

    /// Returns the size of one page of the pool in KiB.
    pub(crate) fn page_kib(&self) -> u64 {
        self.page_kib
    }

    /// Returns the number of pages in the pool. Fails with `Unsupported` if the pool's file cannot
    /// be read, and with `Wrong` if it has no number.
    pub(crate) fn pages(&self) -> Result<u64, Failure> {
        let name = self.file.display();
        let text = std::fs::read_to_string(&self.file).map_err(|_| {
            Failure::Unsupported(format!("huge pages of {} KiB ({name})", self.page_kib))
        })?;
        let number = text.trim().parse();
        number.map_err(|_| Failure::Wrong(format!("{name} says {text:?}")))
    }

    /// Sets the number of pages in the pool to `pages`. Returns the time of the write in
    /// nanoseconds. Returns `Ok` with fewer pages in the pool if memory runs out: see
    /// [`Self::pages`]. Fails with `Unsupported` if even root may not write the file, and with
    /// `System` if writing fails otherwise.
    pub(crate) fn resize(&self, pages: u64) -> Result<u64, Failure> {
        let text = pages.to_string();
        let begin = monotonic_ns();
        let written = std::fs::write(&self.file, &text);
        let ns = monotonic_ns() - begin;
        match written {
            Ok(()) => Ok(ns),
            Err(error) => {
                Err(self.refused(format!("write {text} to {}", self.file.display()), error))
            }
        }
    }

    /// Changes the number of pages in the pool from `from` to `to`, a page at a time. Returns the
    /// time of each page in nanoseconds, with a write to the open file. Fails as [`Self::resize`]
    /// does, and with `System` if the file cannot be opened.
    pub(crate) fn step(&self, from: u64, to: u64) -> Result<Vec<u64>, Failure> {
        let name = self.file.display();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&self.file)
            .map_err(|error| self.refused(format!("open {name}"), error))?;
        let numbers: Vec<u64> = if from <= to {
            (from + 1..=to).collect()
        } else {
            (to..from).rev().collect()
        };
        let mut times = Vec::with_capacity(numbers.len());
        for pages in numbers {
            let text = pages.to_string();
            let begin = monotonic_ns();
            let written = file.write_all_at(text.as_bytes(), 0);
            times.push(monotonic_ns() - begin);
            written.map_err(|error| self.refused(format!("write {text} to {name}"), error))?;
        }
        Ok(times)
    }

    /// Returns the failure for `error` of an access to the pool's file, described by `what`.
    fn refused(&self, what: String, error: std::io::Error) -> Failure {
        // SAFETY: the call takes no arguments and cannot fail.
        if is_refused(&error) && unsafe { libc::geteuid() } == 0 {
            let name = self.file.display();
            return Failure::Unsupported(format!(
                "a pool of huge pages ({name} cannot be written)"
            ));
        }
        Failure::system(what)(error)
    }

    /// Adds pages of `page_bytes` bytes, for `bytes` bytes, rounded up, to the kernel's pool of
    /// such pages, until the result is dropped.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] if there is no pool or root may not change it, [`Failure::System`]
    /// if writing its size fails otherwise, [`Failure::Wrong`] if memory does not suffice for the
    /// pages. In the last case the pool has its old size again.
    pub(crate) fn lend(bytes: usize, page_bytes: usize) -> Result<Lent, Failure> {
        let pool = Self::of((page_bytes >> 10) as u64)?;
        let before = pool.pages()?;
        let wanted = bytes.div_ceil(page_bytes) as u64;
        let lent = Lent { pool, before };
        lent.pool.resize(before + wanted)?;
        match lent.pool.pages()? - before {
            got if got >= wanted => Ok(lent),
            got => Err(Failure::Wrong(format!(
                "{got} of {wanted} huge pages could be had"
            ))),
        }
    }
}

/// Pages added to a pool by [`Pool::lend`]. Dropping the value sets the pool to its size before.
#[derive(Debug)]
pub(crate) struct Lent {
    pool: Pool,
    before: u64,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // If that fails, the pool stays larger, which does no harm.
        let _ = self.pool.resize(self.before);
    }
}

/// Returns whether a kernel refuses the write, even by root, because it has no pool.
fn is_refused(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EACCES | libc::EPERM | libc::EROFS | libc::EOPNOTSUPP)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_no_machine_has_is_unsupported() {
        let error = Pool::of(12_345).expect_err("no such pages");
        assert!(matches!(error, Failure::Unsupported(_)), "{error}");
        assert!(error.to_string().contains("hugepages-12345kB"), "{error}");
    }
}
