//! What a disk says of itself, checked: its features and its configuration space (virtio 1.2,
//! 5.2.4). Pure logic.

use bitflags::bitflags;
use core::fmt;

/// Bytes of a sector, the unit of the protocol, whatever the disk's blocks are.
pub const SECTOR_BYTES: u64 = SECTOR as u64;
const SECTOR: u32 = 512;
/// The largest block that a page of the cache can hold.
const MAX_BLOCK_BYTES: u32 = 4096;
/// Bytes that every segment may have: a page is one.
const MIN_SEGMENT_BYTES: u32 = 4096;
/// Data segments of a request, as many as it has pages at most.
pub const MAX_SEGMENTS: usize = 32;
/// The largest disk: what file offsets can say.
const MAX_SECTORS: u64 = i64::MAX as u64 / SECTOR_BYTES;

bitflags! {
    /// Features of a block device that are used, and those of every device.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// A segment has a largest size.
        const SIZE_MAX = 1 << 1;
        /// A request has a largest number of segments.
        const SEG_MAX = 1 << 2;
        /// Writes are refused.
        const RO = 1 << 5;
        /// The size of a block is told.
        const BLK_SIZE = 1 << 6;
        /// There is a cache to flush.
        const FLUSH = 1 << 9;
        /// The size of a physical block is told.
        const TOPOLOGY = 1 << 10;
        /// Ranges can be discarded.
        const DISCARD = 1 << 13;
        /// Ranges can be made zero.
        const WRITE_ZEROES = 1 << 14;
        /// Made after the standard.
        const VERSION_1 = 1 << 32;
    }
}

/// Why a disk cannot be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BadDisk {
    /// The configuration space ends before this byte.
    Config(usize),
    /// Its blocks.
    BlockBytes(u32),
    /// The most bytes that a segment may have.
    SegmentBytes(u32),
    /// The queue has so few descriptors.
    QueueSize {
        /// Which.
        size: u32,
        /// That are needed.
        needed: usize,
    },
}

impl fmt::Display for BadDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(at) => write!(f, "its configuration space ends before byte {at}"),
            Self::BlockBytes(bytes) => write!(
                f,
                "blocks of {bytes} bytes: not a power of two from {SECTOR_BYTES} to {MAX_BLOCK_BYTES}"
            ),
            Self::SegmentBytes(bytes) => {
                write!(f, "segments of {bytes} bytes hold no page")
            }
            Self::QueueSize { size, needed } => {
                write!(f, "a queue of {size} descriptors; {needed} are needed")
            }
        }
    }
}

/// What the disk can do and takes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a logical block: 512 to 4096, a power of two.
    pub block_bytes: u32,
    /// Bytes of a physical block, not less.
    pub physical_block_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// There is a cache to flush.
    pub flush: bool,
    /// Data segments of a request, 1 to [`MAX_SEGMENTS`].
    pub segments: usize,
    /// Bytes of a segment, at least a page.
    pub segment_bytes: u32,
    /// Sectors that one discard may have, whole blocks; 0: it cannot.
    pub discard_sectors: u64,
    /// Sectors that one request for zeroes may have, whole blocks; 0: it cannot.
    pub zeroes_sectors: u64,
}

impl Limits {
    /// Reads them by `word`, which gives the little-endian word at an offset of the configuration
    /// space.
    ///
    /// # Errors
    /// The disk cannot be used.
    pub fn read(features: Features, word: impl Fn(usize) -> Option<u32>) -> Result<Self, BadDisk> {
        const SIZE_MAX: usize = 8;
        const SEG_MAX: usize = 12;
        const BLK_SIZE: usize = 20;
        const TOPOLOGY: usize = 24;
        const DISCARD_SECTORS: usize = 36;
        const ZEROES_SECTORS: usize = 48;
        let field = |feature: Features, at: usize| {
            if features.contains(feature) {
                word(at).map(Some).ok_or(BadDisk::Config(at + 4))
            } else {
                Ok(None)
            }
        };
        let block_bytes = field(Features::BLK_SIZE, BLK_SIZE)?.unwrap_or(SECTOR);
        if !block_bytes.is_power_of_two() || !(SECTOR..=MAX_BLOCK_BYTES).contains(&block_bytes) {
            return Err(BadDisk::BlockBytes(block_bytes));
        }
        let segment_bytes = field(Features::SIZE_MAX, SIZE_MAX)?.unwrap_or(u32::MAX);
        if segment_bytes < MIN_SEGMENT_BYTES {
            return Err(BadDisk::SegmentBytes(segment_bytes));
        }
        // As Linux: a request has a segment at least, whatever the device says.
        let segments = field(Features::SEG_MAX, SEG_MAX)?
            .unwrap_or(u32::MAX)
            .max(1);
        let exponent = field(Features::TOPOLOGY, TOPOLOGY)?.unwrap_or(0) & 0xff;
        let physical = block_bytes.checked_shl(exponent);
        let whole_blocks = |sectors: Option<u32>| {
            let sectors = u64::from(sectors.unwrap_or(0));
            sectors - sectors % u64::from(block_bytes / SECTOR)
        };
        Ok(Self {
            block_bytes,
            // What does not fit is no power of two of the block either.
            physical_block_bytes: physical
                .filter(|&b| b >= block_bytes)
                .unwrap_or(block_bytes),
            read_only: features.contains(Features::RO),
            flush: features.contains(Features::FLUSH),
            segments: usize::try_from(segments)
                .unwrap_or(MAX_SEGMENTS)
                .min(MAX_SEGMENTS),
            segment_bytes,
            discard_sectors: whole_blocks(field(Features::DISCARD, DISCARD_SECTORS)?),
            zeroes_sectors: whole_blocks(field(Features::WRITE_ZEROES, ZEROES_SECTORS)?),
        })
    }

    /// The sectors that can be used of a disk that says it has this many: whole blocks, and no
    /// more than offsets can say.
    pub fn usable_sectors(&self, capacity: u64) -> u64 {
        let sectors = capacity.min(MAX_SECTORS);
        sectors - sectors % u64::from(self.block_bytes).div_ceil(SECTOR_BYTES)
    }
}
