//! Attaches to tampered metadata, and uses every operation of an attached host.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "shared by a test and a fuzz target"
)]

use std::{
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use ebb_mm::{
    Allocator, Config, CpuCache, Frame, FrameRange, Mobility, Order, PutBack, Reclaimer,
    ReportSink, Request, ZoneConfig, ZoneKind, attach::Attached, metadata_layout,
};

const PAGE: usize = 4096;
/// The number of frames in the lowest of three zones. The first two zones share a tree, and the
/// last has a whole GiB.
const DMA: u64 = 1 << 12;
const LOW: u64 = 1 << 15;
const HIGH: u64 = (1 << 18) + 5000;

/// The number of words behind the header that are changed: all but the last of the bits.
pub const BODY_WORDS: u32 = 4096;

/// Zeroed memory, behind which an access ends the program.
pub struct Memory {
    whole: NonNull<u8>,
    mapped: usize,
    bytes: usize,
}

impl Memory {
    /// Maps `bytes` bytes, rounded up to whole pages.
    pub fn new(bytes: usize) -> Self {
        Self::map(bytes, libc::MAP_PRIVATE)
    }

    /// Maps memory that children of this process share.
    pub fn shared(bytes: usize) -> Self {
        Self::map(bytes, libc::MAP_SHARED)
    }

    fn map(bytes: usize, sharing: libc::c_int) -> Self {
        let bytes = bytes.next_multiple_of(PAGE);
        let mapped = bytes + PAGE;
        // SAFETY: a new mapping at an address of the host's choice touches nothing.
        let whole = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                sharing | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(whole != libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let whole = NonNull::new(whole.cast::<u8>()).expect("not at 0");
        // SAFETY: the last page of the mapping.
        let done =
            unsafe { libc::mprotect(whole.add(bytes).as_ptr().cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        Self {
            whole,
            mapped,
            bytes,
        }
    }

    pub fn base(&self) -> NonNull<u8> {
        self.whole
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory as words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped, aligned, and any bytes are atomics.
        unsafe {
            NonNull::slice_from_raw_parts(self.whole.cast::<AtomicU64>(), self.bytes / 8).as_ref()
        }
    }

    /// Copies words to its start.
    pub fn fill(&self, from: &[AtomicU64]) {
        for (to, from) in self.words().iter().zip(from) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no reference to it is left.
        unsafe { libc::munmap(self.whole.as_ptr().cast(), self.mapped) };
    }
}

/// Returns metadata of partly used memory.
fn used_metadata() -> Memory {
    let dma = [FrameRange::new(Frame::new(10), DMA - 10)];
    let low = [FrameRange::new(Frame::new(DMA), LOW)];
    let high = [FrameRange::new(Frame::new(1 << 20), HIGH)];
    let zone = |kind, ranges| ZoneConfig {
        kind,
        node: 0,
        ranges,
    };
    let zones = [
        zone(ZoneKind::Dma, &dma),
        zone(ZoneKind::Dma32, &low),
        zone(ZoneKind::Normal, &high),
    ];
    let config = Config::new(&zones).with_frame_marks();
    let layout = metadata_layout(&config).expect("a valid configuration");
    let memory = Memory::new(layout.size());
    // SAFETY: zeroed memory of this layout, which outlives the allocator.
    let allocator = unsafe { Allocator::new(memory.base(), &config, &()) }.expect("valid");
    let mut cache = CpuCache::new();
    let mut take = |order| {
        let request = Request::new(order, Mobility::Movable);
        allocator.allocate(&mut cache, request).expect("memory")
    };
    let gib = take(Order::GIB);
    let frames: Vec<_> = (0..3000).map(|_| take(Order::BASE)).collect();
    allocator.free(&mut cache, gib, Order::GIB);
    for &frame in frames.iter().step_by(3) {
        allocator.free(&mut cache, frame, Order::BASE);
    }
    allocator.drain(&mut cache);
    memory
}

/// A sink that drops no memory.
struct Nowhere;

impl ReportSink for Nowhere {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        assert!(!ranges.is_empty() && ranges.iter().all(|range| range.frames != 0));
        Ok(())
    }
}

/// Runs the fuzz input. The first part are patches: two bytes for the index of a word and eight for
/// its value, up to a patch beyond the memory. The rest are operations of one byte each.
pub fn exercise(input: &[u8]) {
    let memory = used_metadata();
    let mut rest = input;
    while let Some((word, value)) = patch(rest) {
        let Some(word) = memory.words().get(usize::from(word)) else {
            break;
        };
        word.store(value, Ordering::Relaxed);
        rest = &rest[10..];
    }
    let operations = rest.get(2..).unwrap_or_default();
    // SAFETY: the memory is valid for its bytes, and changed by atomics only.
    let Ok(attached) = (unsafe { Attached::new(memory.base(), memory.bytes()) }) else {
        return;
    };
    let mut starts = Vec::new();
    for block in attached.blocks() {
        assert_eq!(attached.block(block.start), Some(block));
        starts.push(block.start);
    }
    for zone in attached.zones() {
        assert!(zone.free_frames <= zone.blocks * 512);
    }
    let (mut open, mut reclaimer) = (None, Reclaimer::new());
    for &operation in operations {
        let at = starts.len() * usize::from(operation) / 256;
        match operation % 8 {
            0..=3 => {
                if let Some(&start) = starts.get(at) {
                    open = open.or_else(|| attached.open(start).ok());
                    if let Some(open) = &mut open {
                        let _ = open.take(start);
                    }
                }
            }
            4 => {
                if let Some(open) = open.take() {
                    open.close(PutBack::Reported);
                }
            }
            5 => {
                let _ = reclaimer.step(&attached, u64::from(operation), &mut Nowhere);
            }
            6 => {
                attached.recover(|| ());
            }
            _ => {
                // The guest tampers with the metadata in between.
                let word = memory.words().len() * usize::from(operation) / 256;
                memory.words()[word].fetch_xor(0x0123_4567_89ab_cdef, Ordering::Relaxed);
            }
        }
    }
    if let Some(open) = open {
        open.close(PutBack::Unchanged);
    }
    // Checks only the number, as any content is a possible view of the blocks.
    assert_eq!(attached.blocks().count(), starts.len());
}

fn patch(input: &[u8]) -> Option<(u16, u64)> {
    let (word, rest) = input.split_first_chunk()?;
    let (value, _) = rest.split_first_chunk()?;
    Some((u16::from_le_bytes(*word), u64::from_le_bytes(*value)))
}
