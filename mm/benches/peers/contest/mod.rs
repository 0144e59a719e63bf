//! The page-frame allocators of crates.io behind one trait, so that each is called statically.
#![allow(
    unreachable_pub,
    dead_code,
    reason = "shared by two programs, each of which uses a part"
)]

mod bitmap;
mod buddy_slab;
mod buddy_system;
mod depot;
mod ebb;
mod free_list;
mod heap;
mod mapping;

pub use self::{
    bitmap::Bitmap, buddy_slab::BuddySlab, buddy_system::BuddySystem, depot::Depot, ebb::Ebb,
    free_list::Ranges,
};

/// Frames in a GiB.
pub const GIB: u64 = 1 << 18;

/// A page-frame allocator. Frames are numbered from 0 in its memory.
pub trait Frames: Sized + Sync {
    /// The crate and its version.
    const NAME: &'static str;
    /// The largest order that it supports.
    const MAX_ORDER: u8;
    /// Whether it has a cache for each CPU.
    const PER_CPU: bool = false;
    /// The largest memory, in frames, for which this machine should hold its metadata.
    const MOST: u64 = 1024 * GIB;
    /// The largest memory, in frames, if every second frame is free.
    const MOST_FRAGMENTED: u64 = Self::MOST;

    /// The per-CPU cache of the allocator.
    type Cpu;

    /// Returns an allocator of `frames` frames, all of them free.
    fn new(frames: u64) -> Self;

    /// Returns the cache of CPU `number`, which the calling thread acts as.
    fn cpu(&self, number: usize) -> Self::Cpu;

    /// Allocates a block. Returns its first frame, or `None` if there is none.
    fn get(&self, cpu: &mut Self::Cpu, order: u8) -> Option<u64>;

    /// Frees a block at the order at which it was allocated.
    fn put(&self, cpu: &mut Self::Cpu, frame: u64, order: u8);

    /// Drains the cache of the CPU, as far as the allocator can.
    fn settle(&self, _cpu: &mut Self::Cpu) {}

    /// Returns the first frame that is not the allocator's own metadata.
    fn first(&self) -> u64 {
        0
    }

    /// Returns the bytes of metadata in use, without memory that was never touched.
    fn metadata(&self) -> u64;
}
