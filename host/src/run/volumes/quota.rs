//! How much a guest may add to a volume (`max=`).
//!
//! What counts is what the guest's requests make files longer by, in pages, what they put into
//! holes, and a page for each name. What a guest removes stays counted: another program may have
//! the file open, and then its bytes are still there. What it cuts off is gone for certain, so that
//! counts no more, as far as the guest had added it to the same file.

use super::handles::Volumes;
use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;
use std::fs::File;

/// The unit in which bytes count.
const PAGE: u64 = 4096;
/// What a name counts, with the file, folder or link that has it.
pub(super) const NAME: u64 = PAGE;
/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// What a guest may add to a volume, and what it has added.
#[derive(Copy, Clone, Debug)]
pub(super) struct Quota {
    /// Bytes; `None` for a volume without a limit.
    pub(super) max: Option<u64>,
    pub(super) used: u64,
}

/// What a guest has added to one file, as long as it knows the file.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Added {
    /// Bytes that count for it.
    counted: u64,
    /// Those of them that are holes as yet: what is put there has counted already.
    holes: u64,
}

/// What a request will add to a file.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    /// Bytes by which the file gets longer, in full pages.
    longer: u64,
    /// Those of them into which nothing is written.
    skipped: u64,
    /// Bytes of holes that are filled.
    filled: u64,
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

    /// Bytes that it counts for a file to which so much was added before.
    fn counts(self, added: &Added) -> u64 {
        self.longer
            .saturating_add(self.filled.saturating_sub(added.holes))
    }
}

/// A size in full pages.
fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE).saturating_mul(PAGE)
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns what writing `len` bytes at `from` adds to a file whose facts are `stat`. `has_hole`
/// says whether there is a hole between two offsets in the file.
pub(super) fn growth_of_write(
    stat: &Stat,
    from: u64,
    len: u64,
    has_hole: impl FnOnce(u64, u64) -> bool,
) -> Growth {
    if len == 0 {
        return Growth::default();
    }
    let end = pages(from.saturating_add(len));
    let (start, old) = (from / PAGE * PAGE, pages(size(stat)));
    let longer = end.saturating_sub(old);
    let inside = end.min(old).saturating_sub(start);
    // Most files have no holes, and none is asked about.
    let may_have_holes = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK < old;
    // Behind the end of the file, in its last page, is none.
    let fills = inside > 0 && may_have_holes && has_hole(start, (start + inside).min(size(stat)));
    Growth {
        longer,
        skipped: start.saturating_sub(old).min(longer),
        filled: if fills { inside } else { 0 },
    }
}

/// Returns whether a file has a hole between two offsets, as far as the host says.
pub(super) fn has_hole(file: &File, start: u64, end: u64) -> bool {
    rustix::fs::seek(file, SeekFrom::Hole(start)).map_or(true, |hole| hole < end)
}

/// Returns what a new size adds to a file whose facts are `stat`.
pub(super) fn growth_of_size(stat: &Stat, new: u64) -> Growth {
    let longer = pages(new).saturating_sub(pages(size(stat)));
    Growth {
        longer,
        skipped: longer,
        filled: 0,
    }
}

impl Volumes {
    /// Refuses a further name in the volume of a folder, if it has no room for one.
    ///
    /// # Errors
    /// `EDQUOT`; `ESTALE` for a handle of nothing.
    pub(super) fn check_name(&self, folder: u64) -> Result<(), Errno> {
        self.quota(self.known(folder)?.volume)?.check(NAME)
    }

    /// Counts a name that was made in a folder.
    pub(super) fn count_name(&mut self, folder: u64) -> Result<(), Errno> {
        let volume = self.known(folder)?.volume;
        self.quota_mut(volume)?.add(NAME);
        Ok(())
    }

    /// Refuses what a request would add to a file, if its volume has no room for that.
    ///
    /// # Errors
    /// As [`Self::check_name`].
    pub(super) fn check_growth(&self, handle: u64, growth: Growth) -> Result<(), Errno> {
        let known = self.known(handle)?;
        self.quota(known.volume)?.check(growth.counts(&known.added))
    }

    /// Counts what a request has added to a file.
    pub(super) fn count_growth(&mut self, handle: u64, growth: Growth) -> Result<(), Errno> {
        let known = self.known_mut(handle)?;
        let counts = growth.counts(&known.added);
        let added = &mut known.added;
        added.counted = added.counted.saturating_add(counts);
        added.holes = added.holes.saturating_sub(growth.filled);
        added.holes = added.holes.saturating_add(growth.skipped);
        let volume = known.volume;
        self.quota_mut(volume)?.add(counts);
        Ok(())
    }

    /// Takes back what was cut off a file, as far as the guest had added it.
    pub(super) fn count_cut(&mut self, handle: u64, before: &Stat, new: u64) -> Result<(), Errno> {
        let shorter = pages(size(before)).saturating_sub(pages(new));
        let known = self.known_mut(handle)?;
        let added = &mut known.added;
        let back = shorter.min(added.counted);
        added.counted -= back;
        // It may have been these: rather they count once more.
        added.holes = added.holes.saturating_sub(shorter);
        let volume = known.volume;
        let quota = self.quota_mut(volume)?;
        quota.used = quota.used.saturating_sub(back);
        Ok(())
    }
}
