//! Counts what a guest's requests add to volumes (see [`super::quota`]).

use super::handles::Volumes;
use super::quota::{Added, FOLDER, Growth, NAME, growth_of_size, pages, taken};
use rustix::fs::Stat;
use rustix::io::Errno;

/// A request that adds names to directories, checked but not done yet.
#[derive(Copy, Clone, Debug)]
pub(super) struct Naming {
    volume: usize,
    /// Bytes that the names count, without the growth of the directories.
    counts: u64,
    /// Handles of the directories, and their bytes on the host's disk before the request. Empty for
    /// a volume without a limit.
    folders: [Option<(u64, u64)>; 2],
}

impl Volumes {
    /// Prepares a request that adds a name to `folder`. The name counts `counts` bytes.
    ///
    /// # Errors
    /// Fails with `EDQUOT` if the volume's limit does not allow it, and with `ESTALE` if the handle
    /// is not known.
    pub(super) fn check_name(&self, folder: u64, counts: u64) -> Result<Naming, Errno> {
        self.check_names([folder, folder], counts, counts)
    }

    /// Prepares a request that changes names in two directories of one volume. The names count
    /// `counts` bytes.
    ///
    /// # Errors
    /// Fails with `EDQUOT` if the volume's limit does not allow `needed` more bytes, and with
    /// `ESTALE` if a handle is not known.
    pub(super) fn check_names(
        &self,
        [first, second]: [u64; 2],
        counts: u64,
        needed: u64,
    ) -> Result<Naming, Errno> {
        let volume = self.entry(first)?.volume;
        let quota = self.quota(volume)?;
        quota.check(needed)?;
        let before = |folder| Ok(Some((folder, self.taken_by(folder)?)));
        let folders = match (quota.left(), first == second) {
            (None, _) => [None; 2],
            (_, true) => [before(first)?, None],
            (_, false) => [before(first)?, before(second)?],
        };
        Ok(Naming {
            volume,
            counts,
            folders,
        })
    }

    /// Counts the names that a request has added, and the growth of the directories.
    ///
    /// The growth is known only after the request. So the last request that the limit allows may
    /// exceed it by a few pages. Fails with `ESTALE` if a handle is not known.
    pub(super) fn count_name(&mut self, naming: &Naming) -> Result<(), Errno> {
        self.quota_mut(naming.volume)?.add(naming.counts);
        for (folder, before) in naming.folders.into_iter().flatten() {
            self.count_folder(folder, before)?;
        }
        Ok(())
    }

    /// Counts the disk space of a new directory, as far as it exceeds the bytes that its creation
    /// has counted. Fails with `ESTALE` if the handle is not known.
    pub(super) fn count_new_folder(&mut self, folder: u64) -> Result<(), Errno> {
        self.count_folder(folder, FOLDER - NAME)
    }

    /// Counts the disk space of `folder` beyond `before` bytes.
    fn count_folder(&mut self, folder: u64, before: u64) -> Result<(), Errno> {
        let grown = self.taken_by(folder)?.saturating_sub(before);
        let volume = self.entry(folder)?.volume;
        self.quota_mut(volume)?.add(grown);
        Ok(())
    }

    /// Returns the bytes of a directory on the host's disk.
    fn taken_by(&self, folder: u64) -> Result<u64, Errno> {
        Ok(taken(&rustix::fs::fstat(&self.entry(folder)?.file)?))
    }

    /// Checks that the volume's limit allows a request to add `growth` to a file.
    ///
    /// # Errors
    /// Fails with `EDQUOT` if it does not, and with `ESTALE` if the handle is not known.
    pub(super) fn check_growth(&self, handle: u64, growth: Growth) -> Result<(), Errno> {
        let volume = self.entry(handle)?.volume;
        self.quota(volume)?.check(growth.counts())
    }

    /// Counts the `growth` that a request has added to a file, whose attributes were `before`.
    /// Fails with `ESTALE` if the handle is not known.
    pub(super) fn count_growth(
        &mut self,
        handle: u64,
        before: &Stat,
        growth: Growth,
    ) -> Result<(), Errno> {
        let entry = self.entry_mut(handle)?;
        let mut added = entry.added.in_file(before);
        added.end = added.end.saturating_add(growth.longer);
        entry.added = added;
        let volume = entry.volume;
        self.quota_mut(volume)?.add(growth.counts());
        Ok(())
    }

    /// Counts the change of a file's size to `new` bytes. `before` has the file's attributes before
    /// the change. If pages were cut off that the guest had added, they are subtracted. Fails with
    /// `ESTALE` if the handle is not known.
    pub(super) fn count_size(&mut self, handle: u64, before: &Stat, new: u64) -> Result<(), Errno> {
        let growth = growth_of_size(before, new);
        if growth.longer > 0 {
            return self.count_growth(handle, before, growth);
        }
        let new = pages(new);
        let entry = self.entry_mut(handle)?;
        let Added { start, end } = entry.added.in_file(before);
        entry.added = Added {
            start: start.min(new),
            end: new,
        };
        let volume = entry.volume;
        let back = end.saturating_sub(start.max(new));
        let quota = self.quota_mut(volume)?;
        quota.used = quota.used.saturating_sub(back);
        Ok(())
    }
}
