//! How much a guest may add to a volume (`max=`).
//!
//! What counts is what the guest's requests make files longer by, in pages, what they put into
//! holes of the host's files, a page for each name that comes into a folder, and what folders grow
//! by. What a guest removes stays counted: another program may have the file open, and then its
//! bytes are still there. What it cuts off is gone for certain, so that counts no more, as far as
//! the guest had added these very pages to the end of the same file.

use super::handles::Volumes;
use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;
use std::fs::File;

/// The unit in which bytes count.
const PAGE: u64 = 4096;
/// What a name counts, with the file or link that has it.
pub(super) const NAME: u64 = PAGE;
/// What a new folder counts: its name, and the page in which its own names begin.
pub(super) const FOLDER: u64 = NAME + PAGE;
/// The longest target of a link that file systems keep beside the link's attributes. A longer one
/// takes a page.
const SHORT_TARGET: usize = 59;
/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// What a guest may add to a volume, and what it has added.
#[derive(Copy, Clone, Debug)]
pub(super) struct Quota {
    /// Bytes; `None` for a volume without a limit.
    pub(super) max: Option<u64>,
    pub(super) used: u64,
}

/// The pages at the end of a file that a guest has added by one volume, as long as it knows the
/// file: these and no others have counted as what made the file longer. So what is put into holes
/// among them counts nothing, and what is cut off them counts no more. Both are offsets in the
/// file, in full pages.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Added {
    start: u64,
    end: u64,
}

impl Added {
    /// Returns the pages that are still the guest's for certain in a file whose facts are `stat`:
    /// none if the file does not end where the guest left it, since others have changed its size.
    fn in_file(self, stat: &Stat) -> Self {
        let end = pages(size(stat));
        if self.end == end {
            self
        } else {
            Self { start: end, end }
        }
    }
}

/// What a request will add to a file.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    /// Bytes by which the file gets longer, in full pages.
    longer: u64,
    /// Bytes of the host's holes that are filled.
    filled: u64,
}

/// A request that brings names into folders, before it is done.
#[derive(Copy, Clone, Debug)]
pub(super) struct Naming {
    volume: usize,
    /// What the names count, without the growth of the folders.
    counts: u64,
    /// The folders' handles, and the bytes that the folders took before.
    folders: [Option<(u64, u64)>; 2],
}

impl Quota {
    pub(super) fn new(max: Option<u64>) -> Self {
        Self { max, used: 0 }
    }

    /// Returns the bytes that the guest may still add; `None` if that has no limit.
    pub(super) fn left(&self) -> Option<u64> {
        self.max.map(|max| max.saturating_sub(self.used))
    }

    /// Refuses what is more than is left.
    ///
    /// # Errors
    /// `EDQUOT`.
    fn check(&self, bytes: u64) -> Result<(), Errno> {
        match self.left() {
            Some(left) if bytes > left => Err(Errno::DQUOT),
            _ => Ok(()),
        }
    }

    fn add(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }
}

impl Growth {
    /// Returns whether bytes go where the file has had none.
    pub(super) fn fills_holes(&self) -> bool {
        self.filled > 0
    }

    /// Returns the bytes that it counts.
    fn counts(self) -> u64 {
        self.longer.saturating_add(self.filled)
    }
}

/// A size in full pages.
fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE).saturating_mul(PAGE)
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns the bytes that a file or folder takes on the host.
fn taken(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(BLOCK)
}

/// Returns what a link with this target counts.
pub(super) fn link(target: &[u8]) -> u64 {
    if target.len() > SHORT_TARGET {
        NAME + PAGE
    } else {
        NAME
    }
}

/// Returns what writing `len` bytes at `from` adds to a file whose facts are `stat`, and to which
/// the guest had added `added`. `has_hole` says whether there is a hole between two offsets in the
/// file.
pub(super) fn growth_of_write(
    stat: &Stat,
    added: Added,
    from: u64,
    len: u64,
    has_hole: impl FnOnce(u64, u64) -> bool,
) -> Growth {
    if len == 0 {
        return Growth::default();
    }
    let end = pages(from.saturating_add(len));
    let (start, old) = (from / PAGE * PAGE, pages(size(stat)));
    // Where the guest's own pages begin, holes have counted.
    let inside = end.min(added.in_file(stat).start).saturating_sub(start);
    // Most files have no holes, and none is asked about.
    let may_have_holes = taken(stat) < old;
    // Behind the end of the file, in its last page, is none.
    let fills = inside > 0 && may_have_holes && has_hole(start, (start + inside).min(size(stat)));
    Growth {
        longer: end.saturating_sub(old),
        filled: if fills { inside } else { 0 },
    }
}

/// Returns whether a file has a hole between two offsets, as far as the host says.
pub(super) fn has_hole(file: &File, start: u64, end: u64) -> bool {
    rustix::fs::seek(file, SeekFrom::Hole(start)).map_or(true, |hole| hole < end)
}

/// Returns what a new size adds to a file whose facts are `stat`.
pub(super) fn growth_of_size(stat: &Stat, new: u64) -> Growth {
    Growth {
        longer: pages(new).saturating_sub(pages(size(stat))),
        filled: 0,
    }
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
