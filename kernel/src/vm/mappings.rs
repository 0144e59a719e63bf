//! Files and the page tables that show them: pages that a file drops leave the page tables too, and
//! a file that is sealed against stores has nobody who could store.

use super::backing::Bytes;
use super::members::{Member, Members, NoMemory};
use super::space::{Area, PAGE};
use super::zap::Reach;
use super::{AddressSpace, PageSource};
use crate::errno::Errno;
use crate::sync::MutexGuard;
use alloc::sync::{Arc, Weak};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

impl Member for Weak<AddressSpace> {
    fn is_gone(&self) -> bool {
        self.strong_count() == 0
    }

    fn is(&self, other: &Self) -> bool {
        self.ptr_eq(other)
    }
}

impl From<NoMemory> for Errno {
    fn from(_: NoMemory) -> Self {
        Self::ENOMEM
    }
}

/// In [`Mappings::stores`]: no mapping that may store is made any more. Below it: how many there
/// are.
const DENIED: u32 = 1 << 31;

/// The address spaces that map (or have mapped) a file, and how many of its mappings may store.
#[derive(Debug, Default)]
pub struct Mappings {
    members: Members<Weak<AddressSpace>>,
    stores: AtomicU32,
}

impl Mappings {
    /// Nobody maps it.
    pub const fn new() -> Self {
        Self {
            members: Members::new(),
            stores: AtomicU32::new(0),
        }
    }

    /// Notes that a space is about to map the file.
    pub(super) fn register(&self, space: &Arc<AddressSpace>) -> Result<(), Errno> {
        Ok(self.members.join(Arc::downgrade(space))?)
    }

    /// Notes that a child is about to copy its parent's mappings of the file.
    pub(super) fn register_child(&self, child: &Arc<AddressSpace>) -> Result<(), Errno> {
        Ok(self.members.follow(Arc::downgrade(child))?)
    }

    /// Forgets a space that goes, so that its memory can.
    pub(super) fn forget(&self, space: *const AddressSpace) {
        self.members.leave(|member| member.as_ptr() == space);
    }

    /// Keeps [`Self::invalidate`] and [`Self::truncate`] from going on while entries move. The
    /// holder does not wait for memory.
    pub(super) fn keep_out(&self) -> MutexGuard<'_, ()> {
        self.members.keep_out()
    }

    /// Whether any space maps the file, or has mapped it and still exists.
    pub fn is_used(&self) -> bool {
        self.members.any()
    }

    /// The number of invalidations so far.
    pub(super) fn sequence(&self) -> u64 {
        self.members.sequence()
    }

    /// Takes the pages with these numbers out of every page table that maps them from `source`,
    /// the file that this belongs to. Call it after the file has dropped them, without a spin lock
    /// held. Private copies that programs made stay, as for a hole that was punched.
    pub fn invalidate(&self, source: &dyn PageSource, pages: Range<u64>) {
        self.take_out(source, &pages, Reach::FilePages);
    }

    /// As [`Self::invalidate`], for a file that was cut: private copies go too.
    pub fn truncate(&self, source: &dyn PageSource, pages: Range<u64>) {
        self.take_out(source, &pages, Reach::AllPages);
    }

    fn take_out(&self, source: &dyn PageSource, pages: &Range<u64>, reach: Reach) {
        let source: *const () = core::ptr::from_ref(source).cast();
        // The last reference to a space may go here: what that drops never walks.
        self.members.walk(|space| {
            if let Some(space) = space.upgrade() {
                space.zap_source(source, pages, reach);
            }
        });
    }

    /// Counts a mapping that may store, until [`Self::release_stores`].
    ///
    /// # Errors
    /// `EPERM` once such mappings are denied.
    pub(super) fn claim_stores(&self) -> Result<(), Errno> {
        let one_more = |stores: u32| (stores & DENIED == 0).then_some(stores + 1);
        // Relaxed (all of `stores`): one word says it all; the order of data comes with the locks
        // under which areas are made and files sealed.
        self.stores
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map(|_| ())
            .map_err(|_| Errno::EPERM)
    }

    /// Takes [`Self::claim_stores`] back.
    pub(super) fn release_stores(&self) {
        let before = self.stores.fetch_sub(1, Ordering::Relaxed);
        debug_assert_ne!(before & !DENIED, 0, "more mappings may store than do");
    }

    /// From now on no mapping is made that may store; those that exist stay (`F_SEAL_FUTURE_WRITE`).
    pub fn deny_new_stores(&self) {
        self.stores.fetch_or(DENIED, Ordering::Relaxed);
    }

    /// The same where no mapping may store (`F_SEAL_WRITE`).
    ///
    /// # Errors
    /// `EBUSY` if one may.
    pub fn deny_stores(&self) -> Result<(), Errno> {
        let deny = |stores: u32| (stores & !DENIED == 0).then_some(DENIED);
        self.stores
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, deny)
            .map(|_| ())
            .map_err(|_| Errno::EBUSY)
    }
}

/// The part of an area that shows these pages of a file; empty where it shows none.
fn shown(area: &Area, source: *const (), pages: &Range<u64>) -> Range<u64> {
    let Bytes::File(file, offset) = &area.backing else {
        return 0..0;
    };
    if !file.same_source(source) {
        return 0..0;
    }
    // In pages from the start of the area.
    let before = offset / PAGE;
    let end = pages.end.saturating_sub(before).min(area.bytes() / PAGE);
    let first = pages.start.saturating_sub(before).min(end);
    area.start + first * PAGE..area.start + end * PAGE
}

impl AddressSpace {
    /// Takes out the pages that come from these pages of a file.
    fn zap_source(&self, source: *const (), pages: &Range<u64>, reach: Reach) {
        // Areas never fail this, so nothing is left out.
        let _ = self.zap_areas(0..crate::arch::USER_END, reach, |area| {
            Ok(shown(area, source, pages))
        });
        self.zap_leaving();
    }
}
