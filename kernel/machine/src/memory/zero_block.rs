//! The huge block of zeros that private memory maps after it was read and before it is written. It
//! is allocated at the first such read, and freed with the last entry that maps it.

use super::huge::clear;
use super::memmap::{self, Descriptor, Kind};
use super::percpu::{self, Count};
use crate::sync::SpinLock;
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_mm::{Frame, Mobility, Order, Request, Reserve};

/// The block, and the number of page-table entries that map it or are about to.
struct Shown {
    block: Option<Frame>,
    users: u64,
}

static SHOWN: SpinLock<Shown> = SpinLock::new(Shown {
    block: None,
    users: 0,
});

// Relaxed, here and below: a value of its own, read when it is needed.
static USED: AtomicBool = AtomicBool::new(true);

/// Returns whether page tables may map the huge block of zeros
/// (`/sys/kernel/mm/transparent_hugepage/use_zero_page`).
pub fn is_used() -> bool {
    USED.load(Ordering::Relaxed)
}

/// Allows page tables to map the huge block of zeros if `used` is set. Otherwise no further entries
/// map it. Existing mappings stay.
pub fn set_used(used: bool) {
    USED.store(used, Ordering::Relaxed);
}

/// A counted reference to the huge block of zeros, for one page-table entry. Dropping the last
/// reference frees the block.
#[derive(Debug)]
pub struct ZeroBlock(Frame);

impl ZeroBlock {
    /// Returns a reference to the huge block of zeros, and allocates the block if there is none.
    /// Returns `None` if no block is free. Does not wait for memory, but other threads may run
    /// while a new block is cleared, so the caller holds no spin lock.
    pub fn get() -> Option<Self> {
        let join = |new: Option<Frame>| {
            let mut shown = SHOWN.lock();
            shown.block = shown.block.or(new);
            let block = shown.block?;
            shown.users += 1;
            Some(Self(block))
        };
        if let Some(known) = join(None) {
            return Some(known);
        }
        let request = Request::new(Order::PAGEBLOCK, Mobility::Unmovable).reserve(Reserve::Keep);
        let Ok((new, contents)) = percpu::this().allocate_known(request) else {
            percpu::add(Count::ZeroBlockFailures, 1);
            return None;
        };
        percpu::add(Kind::Kernel.count(), Order::PAGEBLOCK.frames());
        Descriptor::get(new).take(Kind::Kernel, Order::PAGEBLOCK);
        clear(new, contents);
        let got = join(Some(new));
        if got.as_ref().is_some_and(|got| got.0 == new) {
            percpu::add(Count::ZeroBlocks, 1);
        } else {
            // Another CPU was first.
            memmap::release(new);
        }
        got
    }

    /// Returns the first frame of the block without dropping the reference, which a page-table
    /// entry then holds.
    pub fn into_counted(self) -> Frame {
        let block = self.0;
        core::mem::forget(self);
        block
    }
}

impl Drop for ZeroBlock {
    fn drop(&mut self) {
        release(1);
    }
}

/// Adds a reference to the huge block of zeros for one more page-table entry. The caller holds a
/// reference already.
pub fn share() {
    SHOWN.lock().users += 1;
}

/// Drops the references that `entries` page-table entries held to the huge block of zeros. No TLB
/// caches these entries any more. Frees the block if no reference is left.
pub fn release(entries: u64) {
    let unused = {
        let mut shown = SHOWN.lock();
        debug_assert!(
            shown.users >= entries,
            "fewer entries show the block of zeros"
        );
        shown.users -= entries;
        if shown.users == 0 {
            shown.block.take()
        } else {
            None
        }
    };
    if let Some(block) = unused {
        memmap::release(block);
    }
}
