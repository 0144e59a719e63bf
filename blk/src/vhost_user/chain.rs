//! Parses descriptor chains into requests.
//!
//! The guest can change descriptors, header and ranges at any time. So each is read once into a
//! copy, and only the copy is checked and used. Sums cannot overflow: a chain has at most
//! [`MAX_DESCRIPTORS`] descriptors with 32-bit lengths.

use crate::request::{Fault, HostSlice, MAX_RANGES, Op, Payload, Range, SECTOR_BYTES, Status};
use std::fmt;
use std::sync::Arc;
use virtio_bindings::virtio_blk as blk;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// Maximum number of descriptors in a chain, with those of header and status. It is more than the
/// number that is reported to drivers.
pub const MAX_DESCRIPTORS: usize = 258;
/// Bytes of the header: type, reserved, sector.
const HEADER_BYTES: usize = 16;
/// Bytes of one range in a discard or write-zeroes request: sector, number of sectors, flags.
const RANGE_BYTES: usize = 16;

/// A range of guest physical memory as a descriptor gives it, unchecked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Guest physical address of the first byte.
    pub address: GuestAddress,
    /// Length in bytes.
    pub bytes: u32,
}

/// The size and the access of a disk, which requests are checked against.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// Whether the disk is read-only.
    pub read_only: bool,
}

/// The guest memory of one virtio request. It stays mapped while this value lives.
pub struct GuestPayload {
    memory: Arc<GuestMemoryMmap>,
    slices: Vec<HostSlice>,
    segments: Vec<Segment>,
    bytes: u64,
}

impl fmt::Debug for GuestPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestPayload")
            .field("segments", &self.segments)
            .finish_non_exhaustive()
    }
}

/// A descriptor chain that was read and checked.
#[derive(Debug)]
pub struct Parsed {
    /// The address of the status byte. `None` if the chain has no writable byte for it.
    pub status: Option<GuestAddress>,
    /// The operation and its memory, or the status with which the chain must be answered.
    pub request: Result<(Op, GuestPayload), Status>,
}

/// Reads and checks a descriptor chain. `memory` is the guest's memory, and `limits` describes the
/// disk. A chain that is malformed, too long, or not inside guest memory and the disk gets the
/// status [`Status::IoError`], and an unknown operation [`Status::Unsupported`]. Reads the header
/// and the ranges from guest memory, but no data.
pub fn parse(
    memory: &Arc<GuestMemoryMmap>,
    chain: impl Iterator<Item = Descriptor>,
    limits: Limits,
) -> Parsed {
    let mut readable = Vec::with_capacity(4);
    let mut writable: Vec<Segment> = Vec::with_capacity(4);
    let mut whole = false;
    let mut ordered = true;
    let mut count = 0;
    // One more than allowed, to detect a chain that is too long.
    for descriptor in chain.take(MAX_DESCRIPTORS + 1) {
        let segment = Segment {
            address: descriptor.addr(),
            bytes: descriptor.len(),
        };
        if descriptor.is_write_only() {
            writable.push(segment);
        } else {
            ordered &= writable.is_empty();
            readable.push(segment);
        }
        // If an invalid descriptor cuts the chain off, the last one read still announces a next
        // one.
        whole = !descriptor.has_next();
        count += 1;
    }
    let refuse = |status| Parsed {
        status,
        request: Err(Status::IoError),
    };
    // The status is the last writable byte.
    let Some(last) = writable.last_mut().filter(|last| last.bytes > 0) else {
        return refuse(None);
    };
    last.bytes -= 1;
    let Some(address) = last.address.0.checked_add(last.bytes.into()) else {
        return refuse(None);
    };
    let status = Some(GuestAddress(address));
    if !whole || !ordered || count > MAX_DESCRIPTORS {
        return refuse(status);
    }
    let request = request(memory, &mut readable, &writable, limits);
    Parsed { status, request }
}

/// Parses the header, checks the request and translates its addresses. Returns the status for an
/// answer if the request is malformed or unsupported.
fn request(
    memory: &Arc<GuestMemoryMmap>,
    readable: &mut Vec<Segment>,
    writable: &[Segment],
    limits: Limits,
) -> Result<(Op, GuestPayload), Status> {
    let header: [u8; HEADER_BYTES] = take_front(memory, readable)?;
    let field = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let sector = u64::from(field(8)) | u64::from(field(12)) << 32;
    let none = || payload(memory, &[]);
    match field(0) {
        blk::VIRTIO_BLK_T_IN => {
            let payload = payload(memory, writable)?;
            let start = place(sector, payload.bytes, limits)?;
            Ok((Op::Read(start), payload))
        }
        blk::VIRTIO_BLK_T_OUT if limits.read_only => Err(Status::IoError),
        blk::VIRTIO_BLK_T_OUT => {
            let payload = payload(memory, readable)?;
            let start = place(sector, payload.bytes, limits)?;
            Ok((Op::Write(start), payload))
        }
        blk::VIRTIO_BLK_T_FLUSH => Ok((Op::Flush, none()?)),
        blk::VIRTIO_BLK_T_GET_ID => Ok((Op::GetId, payload(memory, writable)?)),
        kind @ (blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES) => {
            if limits.read_only {
                return Err(Status::IoError);
            }
            let zeroes = kind == blk::VIRTIO_BLK_T_WRITE_ZEROES;
            let ranges = ranges(memory, readable, zeroes, limits)?;
            let op = if zeroes {
                Op::WriteZeroes(ranges)
            } else {
                Op::Discard(ranges)
            };
            Ok((op, none()?))
        }
        _ => Err(Status::Unsupported),
    }
}

/// Reads and checks the ranges of a discard or write-zeroes request (`zeroes`). Returns the status
/// for an answer if they are malformed or outside of the disk.
fn ranges(
    memory: &Arc<GuestMemoryMmap>,
    readable: &mut Vec<Segment>,
    zeroes: bool,
    limits: Limits,
) -> Result<Vec<Range>, Status> {
    let bytes: u64 = readable
        .iter()
        .map(|segment| u64::from(segment.bytes))
        .sum();
    let count = usize::try_from(bytes / RANGE_BYTES as u64).unwrap_or(usize::MAX);
    if !bytes.is_multiple_of(RANGE_BYTES as u64) || count == 0 || count > MAX_RANGES {
        return Err(Status::IoError);
    }
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        let raw: [u8; RANGE_BYTES] = take_front(memory, readable)?;
        let half = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let sector = u64::from(half(0)) | u64::from(half(4)) << 32;
        let (sectors, flags) = (half(8), half(12));
        let unmap = flags & blk::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
        // Virtio 1.2, 5.2.6.2: unknown flags, and unmap in a discard, are not supported.
        if flags & !blk::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0 || (unmap && !zeroes) {
            return Err(Status::Unsupported);
        }
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        let offset = place(sector, bytes, limits)?;
        if bytes > 0 {
            ranges.push(Range {
                offset,
                bytes,
                unmap,
            });
        }
    }
    Ok(ranges)
}

/// Returns the byte at which `sector` begins. Fails with `IoError` if the `bytes` from there are no
/// whole sectors or are not all inside the disk.
fn place(sector: u64, bytes: u64, limits: Limits) -> Result<u64, Status> {
    let start = sector.checked_mul(SECTOR_BYTES).ok_or(Status::IoError)?;
    let end = start.checked_add(bytes).ok_or(Status::IoError)?;
    if end > limits.bytes || !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(Status::IoError);
    }
    Ok(start)
}

/// Copies the first `N` bytes of `segments` and removes them from these. Drivers may split a header
/// over any number of descriptors. Fails with `IoError` if there are fewer bytes or they are no
/// guest memory.
fn take_front<const N: usize>(
    memory: &GuestMemoryMmap,
    segments: &mut Vec<Segment>,
) -> Result<[u8; N], Status> {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        let Some(first) = segments.first_mut() else {
            return Err(Status::IoError);
        };
        let count = (N - at).min(first.bytes as usize);
        memory
            .read_slice(&mut bytes[at..at + count], first.address)
            .map_err(|_| Status::IoError)?;
        at += count;
        // At most the segment's own length, so the conversion succeeds.
        let taken = u32::try_from(count).unwrap_or(first.bytes);
        first.bytes -= taken;
        if first.bytes == 0 {
            segments.remove(0);
        } else {
            let next = first
                .address
                .0
                .checked_add(taken.into())
                .ok_or(Status::IoError)?;
            first.address = GuestAddress(next);
        }
    }
    Ok(bytes)
}

/// Translates `segments` to host addresses. Fails with `IoError` if a part is no guest memory.
fn payload(memory: &Arc<GuestMemoryMmap>, segments: &[Segment]) -> Result<GuestPayload, Status> {
    let mut slices: Vec<HostSlice> = Vec::with_capacity(segments.len());
    let mut bytes = 0;
    for segment in segments.iter().filter(|segment| segment.bytes > 0) {
        // A segment may cross the border of two adjacent regions of guest memory.
        for slice in memory.get_slices(segment.address, segment.bytes as usize) {
            let slice = slice.map_err(|_| Status::IoError)?;
            let iov_base = slice.ptr_guard_mut().as_ptr();
            slices.push(HostSlice {
                iov_base: iov_base.cast(),
                iov_len: slice.len(),
            });
        }
        bytes += u64::from(segment.bytes);
    }
    Ok(GuestPayload {
        memory: memory.clone(),
        slices,
        segments: segments.to_vec(),
        bytes,
    })
}

impl GuestPayload {
    /// Returns the ranges of guest physical memory that the request's data uses, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Calls `each` with the parts of the payload from byte `at` on, `left` bytes in total. Fails
    /// if the payload is shorter, or as `each` fails.
    fn pieces(
        &self,
        mut at: u64,
        mut left: usize,
        mut each: impl FnMut(GuestAddress, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for segment in &self.segments {
            let bytes = u64::from(segment.bytes);
            if at >= bytes {
                at -= bytes;
                continue;
            }
            let count = usize::try_from(bytes - at).map_err(|_| Fault)?.min(left);
            if count == 0 {
                return Ok(());
            }
            let address = segment.address.0.checked_add(at).ok_or(Fault)?;
            each(GuestAddress(address), count)?;
            left -= count;
            at = 0;
        }
        if left == 0 { Ok(()) } else { Err(Fault) }
    }
}

impl Payload for GuestPayload {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn in_place(&self) -> Option<&[HostSlice]> {
        Some(&self.slices)
    }

    fn copy_out(&self, at: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        self.pieces(at, buffer.len(), |address, count| {
            let part = &mut buffer[done..done + count];
            done += count;
            self.memory.read_slice(part, address).map_err(|_| Fault)
        })
    }

    fn copy_in(&self, at: u64, buffer: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        self.pieces(at, buffer.len(), |address, count| {
            let part = &buffer[done..done + count];
            done += count;
            self.memory.write_slice(part, address).map_err(|_| Fault)
        })
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
