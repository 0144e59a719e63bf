//! Counts what a guest's requests add to volumes ([`super::quota`]).

use super::handles::Volumes;
use super::quota::{Added, FOLDER, Growth, NAME, growth_of_size, pages, taken};
use rustix::fs::Stat;
use rustix::io::Errno;

/// A request that brings names into folders, before it is done.
#[derive(Copy, Clone, Debug)]
pub(super) struct Naming {
    volume: usize,
    /// What the names count, without the growth of the folders.
    counts: u64,
    /// The folders' handles, and the bytes that the folders took before.
    folders: [Option<(u64, u64)>; 2],
}

impl Volumes {
    /// Prepares a request that brings a name into a folder, for which `counts` bytes count.
    ///
    /// # Errors
    /// `EDQUOT` if the volume has no room for that; `ESTALE` for a handle of nothing.
    pub(super) fn check_name(&self, folder: u64, counts: u64) -> Result<Naming, Errno> {
        self.check_names([folder, folder], counts, counts)
    }

    /// Prepares a request that changes names in two folders of one volume, for which `counts` bytes
    /// count.
    ///
    /// # Errors
    /// `EDQUOT` if the volume has no room for `needed` bytes; `ESTALE` for a handle of nothing.
    pub(super) fn check_names(
        &self,
        [first, second]: [u64; 2],
        counts: u64,
        needed: u64,
    ) -> Result<Naming, Errno> {
        let volume = self.known(first)?.volume;
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

    /// Counts the names that a request has brought into folders, and what the folders have grown
    /// by. How much that is shows only now, so the last request that a volume has room for may add
    /// a few pages more than that.
    pub(super) fn count_name(&mut self, naming: &Naming) -> Result<(), Errno> {
        self.quota_mut(naming.volume)?.add(naming.counts);
        for (folder, before) in naming.folders.into_iter().flatten() {
            self.count_folder(folder, before)?;
        }
        Ok(())
    }

    /// Counts what a new folder takes beyond what it has counted.
    pub(super) fn count_new_folder(&mut self, folder: u64) -> Result<(), Errno> {
        self.count_folder(folder, FOLDER - NAME)
    }

    /// Counts what a folder takes more than `before`.
    fn count_folder(&mut self, folder: u64, before: u64) -> Result<(), Errno> {
        let grown = self.taken_by(folder)?.saturating_sub(before);
        let volume = self.known(folder)?.volume;
        self.quota_mut(volume)?.add(grown);
        Ok(())
    }

    fn taken_by(&self, folder: u64) -> Result<u64, Errno> {
        Ok(taken(&rustix::fs::fstat(&self.known(folder)?.file)?))
    }

    /// Refuses what a request would add to a file, if its volume has no room for that.
    ///
    /// # Errors
    /// As [`Self::check_name`].
    pub(super) fn check_growth(&self, handle: u64, growth: Growth) -> Result<(), Errno> {
        let volume = self.known(handle)?.volume;
        self.quota(volume)?.check(growth.counts())
    }

    /// Counts what a request has added to a file whose facts were `before`.
    pub(super) fn count_growth(
        &mut self,
        handle: u64,
        before: &Stat,
        growth: Growth,
    ) -> Result<(), Errno> {
        let known = self.known_mut(handle)?;
        let mut added = known.added.in_file(before);
        added.end = added.end.saturating_add(growth.longer);
        known.added = added;
        let volume = known.volume;
        self.quota_mut(volume)?.add(growth.counts());
        Ok(())
    }

    /// Counts what a new size has added to a file whose facts were `before`, or takes back what it
    /// has cut off, as far as the guest had added that.
    pub(super) fn count_size(&mut self, handle: u64, before: &Stat, new: u64) -> Result<(), Errno> {
        let growth = growth_of_size(before, new);
        if growth.longer > 0 {
            return self.count_growth(handle, before, growth);
        }
        let new = pages(new);
        let known = self.known_mut(handle)?;
        let Added { start, end } = known.added.in_file(before);
        known.added = Added {
            start: start.min(new),
            end: new,
        };
        let volume = known.volume;
        let back = end.saturating_sub(start.max(new));
        let quota = self.quota_mut(volume)?;
        quota.used = quota.used.saturating_sub(back);
        Ok(())
    }
}
