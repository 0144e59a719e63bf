//! Requests as the device reads them (virtio 1.2, 5.2.6). Pure logic.

use super::limits::MAX_SEGMENTS;
use crate::errno::Errno;

/// Bytes of the header of each request, and of the range of a discard.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the name that a disk has.
pub const ID_BYTES: usize = 20;
/// What the byte for the status holds before the device has written it: no status at all.
pub const NO_STATUS: u8 = 0xff;

/// What a disk is asked to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fill the data from a sector on.
    Read {
        /// Which.
        sector: u64,
    },
    /// Store the data from a sector on.
    Write {
        /// Which.
        sector: u64,
    },
    /// Make stable what was written.
    Flush,
    /// Forget a range; what it reads as afterwards is not said.
    Discard {
        /// Its first sector.
        sector: u64,
        /// Its length.
        sectors: u32,
    },
    /// Make a range zero.
    WriteZeroes {
        /// Its first sector.
        sector: u64,
        /// Its length.
        sectors: u32,
        /// The space may be given up.
        unmap: bool,
    },
    /// Fill the data with the disk's name.
    GetId,
}

/// Which way the data goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the disk.
    Out,
    /// From the disk.
    In,
    /// There is none.
    None,
}

impl Operation {
    /// The header.
    pub fn header(self) -> [u8; HEADER_BYTES] {
        let (number, sector) = match self {
            Self::Read { sector } => (0, sector),
            Self::Write { sector } => (1, sector),
            Self::Flush => (4, 0),
            Self::GetId => (8, 0),
            // The range says where.
            Self::Discard { .. } => (11, 0),
            Self::WriteZeroes { .. } => (13, 0),
        };
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&u32::to_le_bytes(number));
        header[8..].copy_from_slice(&sector.to_le_bytes());
        header
    }

    /// The range behind the header, where there is one.
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

    /// Which way its data goes.
    pub fn direction(self) -> Direction {
        match self {
            Self::Read { .. } | Self::GetId => Direction::In,
            Self::Write { .. } => Direction::Out,
            Self::Flush | Self::Discard { .. } | Self::WriteZeroes { .. } => Direction::None,
        }
    }
}

/// Why a request failed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The disk could not do it.
    Failed,
    /// The disk does not know such requests.
    Unsupported,
    /// The disk broke the protocol and is not used any more.
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

/// What the status byte says; an unknown one is a failure.
pub fn outcome(status: u8) -> Result<(), IoError> {
    match status {
        0 => Ok(()),
        2 => Err(IoError::Unsupported),
        _ => Err(IoError::Failed),
    }
}

/// A run of physical memory.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Its address.
    pub address: u64,
    /// Its length.
    pub bytes: u32,
}

/// The segments of a request: neighbours in memory are one.
#[derive(Debug)]
pub struct Segments {
    list: [Segment; MAX_SEGMENTS],
    len: usize,
}

impl Segments {
    /// Those of `pieces`, which are at most [`MAX_SEGMENTS`], none longer than `longest` bytes.
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

    /// All of them.
    pub fn list(&self) -> &[Segment] {
        &self.list[..self.len]
    }
}

/// The pieces of a range of sectors, none longer than `longest`, which is not 0.
pub fn chunks(sector: u64, sectors: u64, longest: u64) -> impl Iterator<Item = (u64, u32)> {
    let longest = longest.clamp(1, u64::from(u32::MAX));
    (0..sectors.div_ceil(longest)).map(move |n| {
        let start = n * longest;
        // Not more than `longest`, which fits.
        let count = u32::try_from(longest.min(sectors - start)).unwrap_or(u32::MAX);
        (sector + start, count)
    })
}

/// The sectors of a range of bytes, if it consists of whole blocks within a disk of `disk` sectors.
pub fn whole_blocks(offset: u64, bytes: u64, block_bytes: u32, disk: u64) -> Option<(u64, u64)> {
    const SECTOR: u64 = super::limits::SECTOR_BYTES;
    let block = u64::from(block_bytes);
    let end = offset.checked_add(bytes)?;
    (offset.is_multiple_of(block) && bytes.is_multiple_of(block) && end / SECTOR <= disk)
        .then_some((offset / SECTOR, bytes / SECTOR))
}
