//! Checks the features and the configuration space of a disk (virtio 1.2, 5.2.4). Pure logic.

use bitflags::bitflags;
use core::fmt;

/// Size of a sector in bytes. It is the unit of the protocol, independent of the disk's block size.
pub const SECTOR_BYTES: u64 = SECTOR as u64;
const SECTOR: u32 = 512;
/// The largest block that fits a page of the page cache.
const MAX_BLOCK_BYTES: u32 = 4096;
/// A disk must accept segments of at least this size, a page.
const MIN_SEGMENT_BYTES: u32 = 4096;
/// The most data segments of a request, which is also the most pages of a request.
pub const MAX_SEGMENTS: usize = 32;
/// The largest disk, limited by the range of file offsets.
const MAX_SECTORS: u64 = i64::MAX as u64 / SECTOR_BYTES;

bitflags! {
    /// The feature bits of a virtio block device, and of any virtio device, that the driver knows.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// The size of a segment is limited.
        const SIZE_MAX = 1 << 1;
        /// The number of segments of a request is limited.
        const SEG_MAX = 1 << 2;
        /// Writes are refused.
        const RO = 1 << 5;
        /// The disk reports the size of a block.
        const BLK_SIZE = 1 << 6;
        /// The disk has a write cache that can be flushed.
        const FLUSH = 1 << 9;
        /// The disk reports the size of a physical block.
        const TOPOLOGY = 1 << 10;
        /// The disk can discard ranges.
        const DISCARD = 1 << 13;
        /// The disk can write zeros to ranges.
        const WRITE_ZEROES = 1 << 14;
        /// The device conforms to the standard, not to its drafts.
        const VERSION_1 = 1 << 32;
    }
}

/// The reason why a disk cannot be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BadDisk {
    /// The configuration space ends before this byte.
    Config(usize),
    /// The block size is invalid.
    BlockBytes(u32),
    /// The largest segment is smaller than a page.
    SegmentBytes(u32),
    /// The queue has too few descriptors.
    QueueSize {
        /// Number of descriptors of the queue.
        size: u32,
        /// Number of descriptors that are needed.
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

/// The checked limits of a disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of a logical block in bytes: a power of two from 512 to 4096.
    pub block_bytes: u32,
    /// Size of a physical block in bytes, at least `block_bytes`.
    pub physical_block_bytes: u32,
    /// Whether the disk refuses writes.
    pub read_only: bool,
    /// Whether the disk has a cache to flush.
    pub flush: bool,
    /// The most data segments of a request, 1 to [`MAX_SEGMENTS`].
    pub segments: usize,
    /// The most bytes of a segment, at least a page.
    pub segment_bytes: u32,
    /// The most sectors of a discard, whole blocks. 0 if the disk cannot discard.
    pub discard_sectors: u64,
    /// The most sectors of a request for zeros, whole blocks. 0 if the disk has no such requests.
    pub zeroes_sectors: u64,
}

impl Limits {
    /// Reads the limits of a disk with `features`. `word` returns the little-endian word at an
    /// offset of the configuration space, or `None` beyond its end.
    ///
    /// # Errors
    /// [`BadDisk`] if the disk cannot be used.
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
        // As on Linux, a request has at least one segment, even if the device reports 0.
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
            // A size that overflows is ignored like one that is smaller than a block.
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

    /// Returns the number of usable sectors of a disk with `capacity` sectors: whole blocks within
    /// the range of file offsets.
    pub fn usable_sectors(&self, capacity: u64) -> u64 {
        let sectors = capacity.min(MAX_SECTORS);
        sectors - sectors % u64::from(self.block_bytes).div_ceil(SECTOR_BYTES)
    }
}
