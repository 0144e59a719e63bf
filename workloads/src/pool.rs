//! The kernel's pools of huge pages: reads and sets their size, and enlarges one for a while.

use crate::clock::monotonic_ns;
use crate::mapping::HUGE_BYTES;
use crate::{Failure, meminfo};
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
        let name = self.file.display();
        match written {
            Ok(()) => Ok(ns),
            // SAFETY: the call takes no arguments and cannot fail.
            Err(error) if is_refused(&error) && unsafe { libc::geteuid() } == 0 => Err(
                Failure::Unsupported(format!("a pool of huge pages ({name} cannot be written)")),
            ),
            Err(error) => Err(Failure::system(format!("write {text} to {name}"))(error)),
        }
    }

    /// Adds 2 MiB pages for `bytes` bytes, rounded up, to the pool, until the result is dropped.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] if there is no pool or root may not change it, [`Failure::System`]
    /// if writing its size fails otherwise, [`Failure::Wrong`] if memory does not suffice for the
    /// pages. In the last case the pool has its old size again.
    pub(crate) fn lend(bytes: usize) -> Result<Lent, Failure> {
        let pool = Self::of((HUGE_BYTES >> 10) as u64)?;
        let before = pool.pages()?;
        let wanted = bytes.div_ceil(HUGE_BYTES) as u64;
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
