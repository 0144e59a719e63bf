//! Limits how many bytes a guest may add to a volume (`max=`).
//!
//! These count: the pages by which the guest's requests make files longer, the pages that they put
//! into holes of the host's files, a page for each new name in a directory, and the growth of
//! directories.
//!
//! Removed files stay counted, since another program may have them open, and then the bytes still
//! exist. Pages that are cut off a file are certainly gone. They are subtracted if the guest had
//! added these same pages at the end of the same file.

use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;
use std::fs::File;

/// The unit in which bytes are counted.
const PAGE: u64 = 4096;
/// Bytes that a new name in a directory counts against a volume's limit, including the empty file
/// or the short link that it names.
pub(super) const NAME: u64 = PAGE;
/// Bytes that a new directory counts against a volume's limit: [`NAME`], and its first page of
/// entries.
pub(super) const FOLDER: u64 = NAME + PAGE;
/// The most bytes of a link's target that file systems store beside the link's attributes. A longer
/// target takes a page.
const SHORT_TARGET: usize = 59;
/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// The limit of one volume in bytes, and the bytes that count as added by the guest.
#[derive(Copy, Clone, Debug)]
pub(super) struct Quota {
    /// The limit in bytes. `None` for a volume without a limit.
    pub(super) max: Option<u64>,
    /// Bytes that count as added.
    pub(super) used: u64,
}

/// The pages at the end of a file that a guest has added through one volume, as offsets of their
/// start and end.
///
/// Only these pages have counted as growth of the file. So bytes in holes among them do not count
/// again, and pages cut off from them are subtracted. They are known as long as the guest has a
/// handle of the file.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Added {
    /// The first byte of the first page.
    pub(super) start: u64,
    /// The byte behind the last page.
    pub(super) end: u64,
}

impl Added {
    /// Returns the pages of this range that are certainly still at the end of the file with the
    /// attributes `stat`. If the file ends at another page than the range, another program has
    /// changed its size. The result is then an empty range at the file's end.
    pub(super) fn in_file(self, stat: &Stat) -> Self {
        let end = pages(size(stat));
        if self.end == end {
            self
        } else {
            Self { start: end, end }
        }
    }
}

/// The growth of a file by one request, in bytes of full pages of 4096.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    /// Bytes by which the file gets longer, in full pages.
    pub(super) longer: u64,
    /// Bytes that fill holes of the host's file, in full pages.
    filled: u64,
}

impl Quota {
    /// Creates the quota of a volume with the limit `max` in bytes, or without a limit if that is
    /// `None`. Nothing counts as added yet.
    pub(super) fn new(max: Option<u64>) -> Self {
        Self { max, used: 0 }
    }

    /// Returns the number of bytes that the guest may still add. Returns `Some(0)` if the limit is
    /// reached or exceeded, and `None` if there is no limit.
    pub(super) fn left(&self) -> Option<u64> {
        self.max.map(|max| max.saturating_sub(self.used))
    }

    /// Checks that `bytes` more may be added. Counts nothing. Always succeeds without a limit.
    ///
    /// # Errors
    /// Fails with `EDQUOT` if `bytes` exceed the rest of the limit ([`Self::left`]).
    pub(super) fn check(&self, bytes: u64) -> Result<(), Errno> {
        match self.left() {
            Some(left) if bytes > left => Err(Errno::DQUOT),
            _ => Ok(()),
        }
    }

    /// Counts `bytes` as added, without a check of the limit.
    pub(super) fn add(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }
}

impl Growth {
    /// Returns whether this growth has bytes that fill holes of the host's file.
    pub(super) fn fills_holes(&self) -> bool {
        self.filled > 0
    }

    /// Returns the number of bytes that this growth counts against the volume's limit: new pages at
    /// the end, and filled holes.
    pub(super) fn counts(self) -> u64 {
        self.longer.saturating_add(self.filled)
    }
}

/// Rounds `bytes` up to a multiple of the page size, 4096. The result is in bytes too, and
/// saturates.
pub(super) fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE).saturating_mul(PAGE)
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns the bytes that a file or directory with the attributes `stat` occupies on the host's
/// disk.
pub(super) fn taken(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(BLOCK)
}

/// Returns the bytes that a new symbolic link to `target` counts against the volume's limit:
/// [`NAME`], and a page more if the target has more than 59 bytes.
pub(super) fn link(target: &[u8]) -> u64 {
    if target.len() > SHORT_TARGET {
        NAME + PAGE
    } else {
        NAME
    }
}

/// Returns the growth of a file by a write of `len` bytes at the byte offset `from`. Without bytes
/// there is no growth.
///
/// `stat` has the file's attributes before the write, and `added` the pages that the guest had
/// added at its end. `has_hole` returns whether the file has a hole between two byte offsets. It is
/// called only if the file occupies less of the disk than its size.
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
    // The guest's own pages start there, and holes among them have counted.
    let inside = end.min(added.in_file(stat).start).saturating_sub(start);
    // A file without holes, like most, is not searched for them.
    let may_have_holes = taken(stat) < old;
    // The rest of the last page behind the file's end is no hole.
    let fills = inside > 0 && may_have_holes && has_hole(start, (start + inside).min(size(stat)));
    Growth {
        longer: end.saturating_sub(old),
        filled: if fills { inside } else { 0 },
    }
}

/// Returns whether `file` has a hole between the byte offsets `start` and `end`. Returns `true` if
/// the host cannot tell. Moves the file's position.
pub(super) fn has_hole(file: &File, start: u64, end: u64) -> bool {
    rustix::fs::seek(file, SeekFrom::Hole(start)).map_or(true, |hole| hole < end)
}

/// Returns the growth of a file by a change of its size to `new` bytes. `stat` has its attributes
/// from before the change. The growth is 0 if the file gets shorter.
pub(super) fn growth_of_size(stat: &Stat, new: u64) -> Growth {
    Growth {
        longer: pages(new).saturating_sub(pages(size(stat))),
        filled: 0,
    }
}
