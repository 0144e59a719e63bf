//! The configuration space and feature bits of the virtio block device (virtio 1.2, 5.2.4).

use crate::image::Image;
use crate::request::{MAX_RANGES, SECTOR_BYTES};
use virtio_bindings::virtio_blk as blk;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Maximum number of virtqueues of one device.
pub const MAX_QUEUES: u16 = 16;
/// Maximum number of entries of one virtqueue.
pub const MAX_QUEUE_SIZE: u16 = 1024;
/// Maximum number of data segments of a request, as reported to drivers. With header and status
/// they fit QEMU's default virtqueue of 128 entries, should a driver not use indirect descriptors.
pub const MAX_SEGMENTS: u32 = 126;
/// Maximum length of a discard or write-zeroes range in sectors: what Linux can express in 32 bits
/// of bytes.
const MAX_RANGE_SECTORS: u32 = u32::MAX >> 9;
/// Bytes of the configuration space, up to and including the fields of write-zeroes.
const CONFIG_BYTES: usize = 60;

/// Returns the virtio feature bits that the device for `image` offers. They depend on whether the
/// image is read-only.
pub fn features(image: &Image) -> u64 {
    let mut bits = vec![
        blk::VIRTIO_BLK_F_SEG_MAX,
        blk::VIRTIO_BLK_F_BLK_SIZE,
        blk::VIRTIO_BLK_F_FLUSH,
        blk::VIRTIO_BLK_F_MQ,
        VIRTIO_F_VERSION_1,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_RING_F_INDIRECT_DESC,
    ];
    if image.read_only() {
        bits.push(blk::VIRTIO_BLK_F_RO);
    } else {
        bits.extend([blk::VIRTIO_BLK_F_DISCARD, blk::VIRTIO_BLK_F_WRITE_ZEROES]);
    }
    bits.into_iter().fold(0, |all, bit| all | 1 << bit)
}

/// Returns the bytes of the configuration space of the device for `image`, in virtio's layout.
pub fn space(image: &Image) -> [u8; CONFIG_BYTES] {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    let ranges = u32::try_from(MAX_RANGES).unwrap_or(1).to_le_bytes();
    put(0, &(image.bytes() / SECTOR_BYTES).to_le_bytes()); // capacity
    put(12, &MAX_SEGMENTS.to_le_bytes()); // seg_max
    put(20, &image.block_bytes().to_le_bytes()); // blk_size
    put(34, &MAX_QUEUES.to_le_bytes()); // num_queues
    put(36, &MAX_RANGE_SECTORS.to_le_bytes()); // max_discard_sectors
    put(40, &ranges); // max_discard_seg
    let block_sectors = u64::from(image.block_bytes()) / SECTOR_BYTES;
    put(44, &u32::try_from(block_sectors).unwrap_or(1).to_le_bytes()); // discard_sector_alignment
    put(48, &MAX_RANGE_SECTORS.to_le_bytes()); // max_write_zeroes_sectors
    put(52, &ranges); // max_write_zeroes_seg
    put(56, &[1]); // write_zeroes_may_unmap
    space
}

/// Returns `size` bytes of the configuration space `space` from `offset` on. Bytes behind its end
/// are zero.
pub fn read(space: &[u8], offset: u32, size: u32) -> Vec<u8> {
    let bytes = space.iter().copied().chain(std::iter::repeat(0));
    bytes.skip(offset as usize).take(size as usize).collect()
}
