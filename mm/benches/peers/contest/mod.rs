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

/// A page-frame allocator. Frames are numbered from 0 in the memory that it was made for.
pub trait Frames: Sized + Sync {
    /// The crate and its version.
    const NAME: &'static str;
    /// The largest order that it can be asked for.
    const MAX_ORDER: u8;
    /// Whether it keeps something for each CPU.
    const PER_CPU: bool = false;
    /// The most memory, in frames, whose metadata this machine should be asked to hold.
    const MOST: u64 = 1024 * GIB;
    /// The same where every second frame is free.
    const MOST_FRAGMENTED: u64 = Self::MOST;

    /// What a CPU holds.
    type Cpu;

    /// An allocator of so much memory, all of it free.
    fn new(frames: u64) -> Self;

    /// The state of the CPU that the calling thread plays.
    fn cpu(&self, number: usize) -> Self::Cpu;

    /// Takes a block.
    fn get(&self, cpu: &mut Self::Cpu, order: u8) -> Option<u64>;

    /// Gives a block back, at the order at which it was taken.
    fn put(&self, cpu: &mut Self::Cpu, frame: u64, order: u8);

    /// Gives back what the CPU holds, as far as there is a way to.
    fn settle(&self, _cpu: &mut Self::Cpu) {}

    /// The first frame that is not its own metadata.
    fn first(&self) -> u64 {
        0
    }

    /// Bytes of metadata in use, memory that was never touched apart.
    fn metadata(&self) -> u64;
}
