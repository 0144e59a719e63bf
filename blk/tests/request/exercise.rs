//! One virtqueue of chains of arbitrary bytes, and the properties that all parsed ones must have.

use ebb_blk::request::{MAX_RANGES, Op, Payload, SECTOR_BYTES};
use ebb_blk::vhost_user::chain::{Limits, MAX_DESCRIPTORS, parse};
use std::sync::Arc;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
    MemoryRegionAddress,
};

/// Bytes of guest memory below the hole.
pub const MEMORY: usize = 64 << 10;
/// Number of descriptors.
pub const QUEUE: u16 = 16;
/// Bytes of an input: descriptors, then heads, then a header, then whether the disk is read-only.
pub const INPUT: usize = 16 * QUEUE as usize + 2 * QUEUE as usize + 16 + 1;
/// Guest memory from this address on holds copies of the header.
pub const HEADERS: u64 = 0x3000;
/// Address of the region behind the hole.
const BEHIND: u64 = 1 << 20;
const AVAILABLE: u32 = 0x1000;
const USED: u32 = 0x2000;
const DISK: u64 = 1 << 20;

thread_local! {
    /// Made once, because each input overwrites all of it.
    static GUEST: Arc<GuestMemoryMmap> = memory();
}

/// Makes three regions of guest memory: two adjacent ones, and one behind a hole.
fn memory() -> Arc<GuestMemoryMmap> {
    let half = MEMORY / 2;
    let ranges = [
        (GuestAddress(0), half),
        (GuestAddress(half as u64), half),
        (GuestAddress(BEHIND), 4096),
    ];
    Arc::new(GuestMemoryMmap::from_ranges(&ranges).expect("memory"))
}

/// Writes `input` as a virtqueue and parses all its chains. Returns the number of valid requests.
pub fn exercise(input: &[u8]) -> usize {
    let Some(input) = input.first_chunk::<INPUT>() else {
        return 0;
    };
    let (table, rest) = input.split_at(16 * usize::from(QUEUE));
    let (heads, rest) = rest.split_at(2 * usize::from(QUEUE));
    let (header, read_only) = rest.split_at(16);
    let memory = GUEST.with(Arc::clone);
    let mut bytes = vec![0; MEMORY];
    let headers = usize::try_from(HEADERS).expect("small");
    for copy in bytes[headers..].chunks_exact_mut(16) {
        copy.copy_from_slice(header);
    }
    let available = AVAILABLE as usize;
    bytes[..table.len()].copy_from_slice(table);
    bytes[available + 2..available + 4].copy_from_slice(&QUEUE.to_le_bytes());
    bytes[available + 4..available + 4 + heads.len()].copy_from_slice(heads);
    memory.write_slice(&bytes, GuestAddress(0)).expect("memory");
    memory
        .write_slice(&[0; 4096], GuestAddress(BEHIND))
        .expect("memory");
    let mut queue = Queue::new(QUEUE).expect("queue");
    queue.set_desc_table_address(Some(0), Some(0));
    queue.set_avail_ring_address(Some(AVAILABLE), Some(0));
    queue.set_used_ring_address(Some(USED), Some(0));
    queue.set_ready(true);
    let limits = Limits {
        bytes: DISK,
        read_only: read_only[0] & 1 == 1,
    };
    let chains = queue.iter(&*memory).expect("the ring itself is sound");
    let mut requests = 0;
    for chain in chains.take(QUEUE.into()) {
        let parsed = parse(&memory, chain, limits);
        let Ok((op, payload)) = parsed.request else {
            continue;
        };
        assert!(
            parsed.status.is_some(),
            "a request without a place for its status"
        );
        check_payload(&memory, &payload);
        check_op(&op, payload.bytes(), limits);
        requests += 1;
    }
    requests
}

fn check_payload(memory: &GuestMemoryMmap, payload: &impl Payload) {
    let slices = payload.in_place().expect("guest memory is mapped");
    // A segment can cover all three regions.
    assert!(slices.len() <= MAX_DESCRIPTORS * 3);
    let bytes: u64 = slices.iter().map(|slice| slice.iov_len as u64).sum();
    assert_eq!(bytes, payload.bytes());
    for slice in slices {
        let (start, len) = (slice.iov_base as usize, slice.iov_len);
        let inside = memory.iter().any(|region| {
            let base = region
                .get_host_address(MemoryRegionAddress(0))
                .expect("mapped") as usize;
            start >= base && start + len <= base + usize::try_from(region.len()).expect("small")
        });
        assert!(inside, "{start:#x}+{len:#x} is not guest memory");
    }
    let mut all = vec![0; usize::try_from(bytes).expect("fits: it is mapped")];
    payload
        .copy_out(0, &mut all)
        .expect("checked when it was made");
    if let Some(last) = all.last().copied() {
        let mut byte = [0];
        payload
            .copy_out(bytes - 1, &mut byte)
            .expect("the last byte");
        assert_eq!(byte[0], last);
        assert!(payload.copy_out(1, &mut all).is_err(), "past the end");
    }
}

fn check_op(op: &Op, bytes: u64, limits: Limits) {
    match op {
        Op::Read(start) | Op::Write(start) => {
            assert!(start + bytes <= limits.bytes && bytes.is_multiple_of(SECTOR_BYTES));
        }
        Op::Discard(ranges) | Op::WriteZeroes(ranges) => {
            assert!(ranges.len() <= MAX_RANGES);
            assert!(
                ranges
                    .iter()
                    .all(|r| r.bytes > 0 && r.offset + r.bytes <= limits.bytes)
            );
        }
        Op::Flush | Op::GetId => {}
    }
    let writes = matches!(op, Op::Write(_) | Op::Discard(_) | Op::WriteZeroes(_));
    assert!(
        !(limits.read_only && writes),
        "a write to a disk that is read-only"
    );
}

/// Returns inputs that are valid requests, each with a name.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    // Descriptor flags: a next descriptor follows, the device writes, the descriptor names a table.
    let (next, write, indirect) = (1, 2, 4);
    let half = MEMORY as u64 / 2;
    let status = (half + 64, 1, write, 0);
    let header = (HEADERS, 16, next, 1);
    let data = |address, bytes, flags| vec![header, (address, bytes, flags | next, 2), status];
    let pieces = vec![
        (HEADERS, 5, next, 1),
        (HEADERS + 5, 11, next, 2),
        (half - 512, 512, next, 3),
        (HEADERS, 512, next, 4),
        status,
    ];
    let mut by_table = vec![(0x30, 48, indirect, 0), (0, 0, 0, 0), (0, 0, 0, 0)];
    by_table.extend(data(HEADERS, 512, write));
    let bare = vec![(HEADERS, 16, next, 2), (0, 0, 0, 0), status];
    let (read, into) = (0, write);
    [
        ("read", read, data(HEADERS, 4096, into)),
        ("read-over-border", read, data(half - 512, 1024, into)),
        ("read-behind-hole", read, data(BEHIND, 4096, into)),
        ("read-by-table", read, by_table),
        ("write", 1, data(HEADERS, 4096, 0)),
        ("write-in-pieces", 1, pieces),
        ("flush", 4, bare),
        ("get-id", 8, data(HEADERS, 20, into)),
        ("discard", 11, data(HEADERS, 32, 0)),
        ("write-zeroes", 13, data(HEADERS, 16, 0)),
    ]
    .map(|(name, kind, chain)| (name, seed(kind, &chain)))
    .into()
}

/// A descriptor: address, length, flags, next.
type Raw = (u64, u32, u16, u16);

fn seed(kind: u32, chain: &[Raw]) -> Vec<u8> {
    let mut input = Vec::with_capacity(INPUT);
    for (address, bytes, flags, next) in chain {
        input.extend(address.to_le_bytes());
        input.extend(bytes.to_le_bytes());
        input.extend(flags.to_le_bytes());
        input.extend(next.to_le_bytes());
    }
    input.resize((16 + 2) * usize::from(QUEUE), 0);
    input.extend(kind.to_le_bytes());
    input.extend([0; 4]);
    // Where ranges are read there is this header again, so its sector is their number of sectors.
    input.extend(8_u64.to_le_bytes());
    input.push(0);
    input
}
