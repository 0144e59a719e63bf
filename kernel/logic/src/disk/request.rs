//! The format of requests to the device (virtio 1.2, 5.2.6). Pure logic.

use super::limits::MAX_SEGMENTS;
use crate::errno::Errno;

/// Size of the header of each request, and of the range of a discard, in bytes.
pub const HEADER_BYTES: usize = 16;
/// Size of a disk's name in bytes.
pub const ID_BYTES: usize = 20;
/// Value of the status byte before the device has written it. It is no valid status.
pub const NO_STATUS: u8 = 0xff;

/// An operation of a disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads data from a sector on.
    Read {
        /// The first sector.
        sector: u64,
    },
    /// Writes data from a sector on.
    Write {
        /// The first sector.
        sector: u64,
    },
    /// Makes earlier writes durable.
    Flush,
    /// Discards a range. Its contents are undefined afterwards.
    Discard {
        /// The first sector.
        sector: u64,
        /// The number of sectors.
        sectors: u32,
    },
    /// Fills a range with zeros.
    WriteZeroes {
        /// The first sector.
        sector: u64,
        /// The number of sectors.
        sectors: u32,
        /// Whether the disk may deallocate the range.
        unmap: bool,
    },
    /// Reads the disk's name.
    GetId,
}

/// The direction of a request's data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the disk.
    Out,
    /// From the disk.
    In,
    /// The request has no data.
    None,
}

impl Operation {
    /// Returns the bytes of the header of the request.
    pub fn header(self) -> [u8; HEADER_BYTES] {
        let (number, sector) = match self {
            Self::Read { sector } => (0, sector),
            Self::Write { sector } => (1, sector),
            Self::Flush => (4, 0),
            Self::GetId => (8, 0),
            // The range contains the sector.
            Self::Discard { .. } => (11, 0),
            Self::WriteZeroes { .. } => (13, 0),
        };
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&u32::to_le_bytes(number));
        header[8..].copy_from_slice(&sector.to_le_bytes());
        header
    }

    /// Returns the bytes of the range that follows the header, or `None` if the operation has no
    /// range.
    pub fn range(self) -> Option<[u8; HEADER_BYTES]> {
        let (sector, sectors, unmap) = match self {
            Self::Discard { sector, sectors } => (sector, sectors, false),
            Self::WriteZeroes {
                sector,
                sectors,
                unmap,
            } => (sector, sectors, unmap),
            _ => return None,
        };
        let mut range = [0; HEADER_BYTES];
        range[..8].copy_from_slice(&sector.to_le_bytes());
        range[8..12].copy_from_slice(&sectors.to_le_bytes());
        range[12..].copy_from_slice(&u32::from(unmap).to_le_bytes());
        Some(range)
    }

    /// Returns the direction of the operation's data.
    pub fn direction(self) -> Direction {
        match self {
            Self::Read { .. } | Self::GetId => Direction::In,
            Self::Write { .. } => Direction::Out,
            Self::Flush | Self::Discard { .. } | Self::WriteZeroes { .. } => Direction::None,
        }
    }
}

/// The reason why a request failed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The disk failed to execute the request.
    Failed,
    /// The disk does not support such requests.
    Unsupported,
    /// The disk violated the protocol and is no longer used.
    Gone,
}

impl From<IoError> for Errno {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Failed => Self::EIO,
            IoError::Unsupported => Self::EOPNOTSUPP,
            IoError::Gone => Self::ENODEV,
        }
    }
}

/// Returns the result of a request whose status byte is `status`, as the device wrote it.
///
/// # Errors
/// [`IoError::Unsupported`] for the status 2. [`IoError::Failed`] for any other status but 0.
pub fn outcome(status: u8) -> Result<(), IoError> {
    match status {
        0 => Ok(()),
        2 => Err(IoError::Unsupported),
        _ => Err(IoError::Failed),
    }
}

/// A contiguous range of physical memory.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Physical address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// The segments of a request. Adjacent pieces of memory are joined.
#[derive(Debug)]
pub struct Segments {
    list: [Segment; MAX_SEGMENTS],
    len: usize,
}

impl Segments {
    /// Returns the segments of a request with the memory in `pieces`. A piece that begins where the
    /// segment before it ends is joined with that segment, unless the joined segment exceeds
    /// `longest` bytes. A piece longer than `longest` is not split.
    ///
    /// # Panics
    /// If there are more than [`MAX_SEGMENTS`] segments.
    pub fn join(pieces: impl Iterator<Item = Segment>, longest: u32) -> Self {
        let mut joined = Self {
            list: [Segment::default(); MAX_SEGMENTS],
            len: 0,
        };
        for piece in pieces {
            if let Some(last) = joined.list[..joined.len].last_mut()
                && last.address + u64::from(last.bytes) == piece.address
                && last
                    .bytes
                    .checked_add(piece.bytes)
                    .is_some_and(|sum| sum <= longest)
            {
                last.bytes += piece.bytes;
                continue;
            }
            assert!(joined.len < MAX_SEGMENTS, "too many pieces for a request");
            joined.list[joined.len] = piece;
            joined.len += 1;
        }
        joined
    }

    /// Returns all segments, in the order of the data.
    pub fn list(&self) -> &[Segment] {
        &self.list[..self.len]
    }
}

/// Splits the range of `sectors` sectors from `sector` on into pieces of at most `longest` sectors,
/// which must not be 0. Yields the first sector and the number of sectors of each piece.
pub fn chunks(sector: u64, sectors: u64, longest: u64) -> impl Iterator<Item = (u64, u32)> {
    let longest = longest.clamp(1, u64::from(u32::MAX));
    (0..sectors.div_ceil(longest)).map(move |n| {
        let start = n * longest;
        // At most `longest`, which fits.
        let count = u32::try_from(longest.min(sectors - start)).unwrap_or(u32::MAX);
        (sector + start, count)
    })
}

/// Converts the range of `bytes` bytes from `offset` on to sectors of 512 bytes. Returns its first
/// sector and its number of sectors. Returns `None` if the range does not consist of whole blocks
/// of `block_bytes` bytes, or is not within a disk of `disk` sectors.
pub fn whole_blocks(offset: u64, bytes: u64, block_bytes: u32, disk: u64) -> Option<(u64, u64)> {
    const SECTOR: u64 = super::limits::SECTOR_BYTES;
    let block = u64::from(block_bytes);
    let end = offset.checked_add(bytes)?;
    (offset.is_multiple_of(block) && bytes.is_multiple_of(block) && end / SECTOR <= disk)
        .then_some((offset / SECTOR, bytes / SECTOR))
}
