//! How much a guest may add to a volume (`max=`).
//!
//! What counts is what the guest's requests make files longer by, in pages, what they put into
//! holes of the host's files, a page for each name that comes into a folder, and what folders grow
//! by. What a guest removes stays counted: another program may have the file open, and then its
//! bytes are still there. What it cuts off is gone for certain, so that counts no more, as far as
//! the guest had added these very pages to the end of the same file.

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
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Added {
    /// Returns the pages that are still the guest's for certain in a file whose facts are `stat`:
    /// none if the file does not end where the guest left it, since others have changed its size.
    pub(super) fn in_file(self, stat: &Stat) -> Self {
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
    pub(super) longer: u64,
    /// Bytes of the host's holes that are filled.
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
    pub(super) fn check(&self, bytes: u64) -> Result<(), Errno> {
        match self.left() {
            Some(left) if bytes > left => Err(Errno::DQUOT),
            _ => Ok(()),
        }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }
}

impl Growth {
    /// Returns whether bytes go where the file has had none.
    pub(super) fn fills_holes(&self) -> bool {
        self.filled > 0
    }

    /// Returns the bytes that it counts.
    pub(super) fn counts(self) -> u64 {
        self.longer.saturating_add(self.filled)
    }
}

/// A size in full pages.
pub(super) fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE).saturating_mul(PAGE)
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns the bytes that a file or folder takes on the host.
pub(super) fn taken(stat: &Stat) -> u64 {
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
