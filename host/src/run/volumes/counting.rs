//! Counts what a guest's requests add to volumes (see [`super::quota`]).

use super::handles::Volumes;
use super::quota::{Added, FOLDER, Growth, NAME, growth_of_size, pages, taken};
use rustix::fs::Stat;
use rustix::io::Errno;

/// A request that adds names to one or two directories of a volume. Its bytes have been checked
/// against the limit, and [`Volumes::count_name`] counts them once the request has succeeded.
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
    /// Checks that the volume of the directory `folder` has `counts` bytes left for a new name
    /// there. Counts nothing yet. Pass the result to [`Self::count_name`] after the name was added.
    ///
    /// # Errors
    /// Fails with `EDQUOT` if the volume's limit does not allow it, with `ESTALE` if the handle is
    /// not known, or if the host cannot read the directory's size.
    pub(super) fn check_name(&self, folder: u64, counts: u64) -> Result<Naming, Errno> {
        self.check_names([folder, folder], counts, counts)
    }

    /// Checks a request that changes names in two directories, which may be the same and must
    /// belong to one volume. The volume must have `needed` bytes left. `counts` are the bytes that
    /// [`Self::count_name`] adds after the request. Counts nothing yet.
    ///
    /// # Errors
    /// Fails with `EDQUOT` if the volume's limit does not allow `needed` more bytes, with `ESTALE`
    /// if a handle is not known, or if the host cannot read a directory's size.
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

    /// Counts the bytes of the names that the request of `naming` has added, and the growth of its
    /// directories on the host's disk. Call this after the request has succeeded.
    ///
    /// The growth is known only then. So the last request that the limit allows may exceed it by a
    /// few pages.
    ///
    /// # Errors
    /// Fails with `ESTALE` if a handle is not known any more, or if the host cannot read a
    /// directory's size. The names are counted then, but not all growth.
    pub(super) fn count_name(&mut self, naming: &Naming) -> Result<(), Errno> {
        self.quota_mut(naming.volume)?.add(naming.counts);
        for (folder, before) in naming.folders.into_iter().flatten() {
            self.count_folder(folder, before)?;
        }
        Ok(())
    }

    /// Counts the disk space of the new directory `folder` beyond the 4096 bytes that its creation
    /// has counted for its content.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known, or if the host cannot read the directory's
    /// size.
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

    /// Checks that the limit of the volume of `handle` allows a request to add `growth` to the
    /// file. Counts nothing.
    ///
    /// # Errors
    /// Fails with `EDQUOT` if the limit does not allow it, and with `ESTALE` if the handle is not
    /// known.
    pub(super) fn check_growth(&self, handle: u64, growth: Growth) -> Result<(), Errno> {
        let volume = self.entry(handle)?.volume;
        self.quota(volume)?.check(growth.counts())
    }

    /// Counts the bytes of `growth`, which a request has added to the file of `handle`. `before`
    /// has the file's attributes from before the request. Does not check the limit.
    ///
    /// # Errors
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

    /// Counts the change of the size of `handle`'s file to `new` bytes. `before` has the file's
    /// attributes from before the change. A longer file counts its new pages. For a shorter one,
    /// the pages that were cut off are subtracted, but only those that the guest had added. Does
    /// not check the limit.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known.
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
