//! The relation of files and the page tables that map them. Pages that a file drops leave the page
//! tables too. A file that is sealed against stores has no mapping that may store.

use super::named::Name;
use super::page_owner::PageOwner;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use logic::errno::Errno;
use logic::members::{Member, Members, Place};
use machine::memory::FrameRef;
use machine::sync::{Mutex, MutexGuard, SpinLock};

/// The pages of a file that an operation unmaps.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// All pages of the range, including private copies.
    All,
    /// The file's own pages. Private copies stay.
    Files,
    /// The file's own pages in areas that are not locked in memory. Private copies stay.
    UnlockedFiles,
}

/// The operations of an address space that a mapped file needs to unmap its pages.
pub(super) trait Shows: Send + Sync {
    /// Returns a number that no other space has had. The number of a child is greater than its
    /// parent's.
    fn number(&self) -> u64;
    /// Unmaps `pages` of the file at the address `source`, as far as `reach` says.
    fn take_out(&self, source: *const (), pages: &Range<u64>, reach: Reach);
    /// Gives up the private copies of `pages` of the file at the address `source`. A later access
    /// to one raises `SIGBUS`.
    fn surrender(&self, source: *const (), pages: &Range<u64>);
}

/// A space that maps the file or has mapped it, and the number of the space.
#[derive(Clone)]
struct Space(Weak<dyn Shows>, u64);

impl Space {
    fn of<S: Shows + 'static>(space: &Arc<S>) -> Self {
        let number = space.number();
        // Typed: a weak reference to the space becomes one to the trait.
        let space: Weak<S> = Arc::downgrade(space);
        Self(space, number)
    }
}

impl Member for Space {
    fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    fn number(&self) -> u64 {
        self.1
    }
}

/// The bit of [`Mappings::stores`] that denies new mappings that may store. The bits below hold the
/// number of such mappings.
const DENIED: u32 = 1 << 31;

/// The address spaces that map a file, or have mapped it, and the number of its mappings that may
/// store.
#[derive(Debug)]
pub struct Mappings {
    members: Members<SpinLock<Vec<Place<Space>>>, Mutex<()>>,
    stores: AtomicU32,
    name: Name,
}

impl Mappings {
    /// Returns the record of a file without mappings.
    pub const fn new() -> Self {
        Self {
            name: Name::none(),
            members: Members::new(SpinLock::new(Vec::new()), Mutex::new(())),
            stores: AtomicU32::new(0),
        }
    }

    /// Gives the file a number, so that pages that it gets from now on can move to other frames.
    /// `file` returns a reference to the file. Without memory for that, the pages do not move.
    pub fn let_move(&self, file: impl FnOnce() -> Weak<dyn PageOwner>) {
        self.name.give(file);
    }

    /// Records in the descriptor of `frame` that the frame is about to become page `index` of the
    /// file.
    pub fn own(&self, frame: &FrameRef, index: u64) {
        self.name.own(frame, index);
    }

    /// Records that `space` is about to map the file.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn register<S: Shows + 'static>(&self, space: &Arc<S>) -> Result<(), Errno> {
        Ok(self.members.join(Space::of(space))?)
    }

    /// Records that `child` is about to copy its parent's mappings of the file.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn register_child<S: Shows + 'static>(&self, child: &Arc<S>) -> Result<(), Errno> {
        Ok(self.members.follow(Space::of(child))?)
    }

    /// Forgets the space with this number, which is being dropped, so that its memory can be freed.
    pub(super) fn forget(&self, number: u64) {
        self.members.leave(number);
    }

    /// Returns a guard that keeps walks over the spaces from beginning, after the end of a walk in
    /// progress. While it exists, [`Self::invalidate`], [`Self::truncate`] and the like wait, so
    /// they meet no entry that is being moved. The holder does not wait for memory.
    pub(super) fn keep_out(&self) -> MutexGuard<'_, ()> {
        self.members.keep_out()
    }

    /// Returns whether any space maps the file, or has mapped it and still exists.
    pub fn is_used(&self) -> bool {
        self.members.any()
    }

    /// Returns the number of walks that have begun to unmap pages. If the number has changed since
    /// a page was looked up, the page may have left the file.
    pub(super) fn sequence(&self) -> u64 {
        self.members.sequence()
    }

    /// Unmaps `pages` from every page table that maps them from `source`, the file that owns these
    /// mappings. Call this after the file has dropped the pages, without a spin lock. Private
    /// copies that programs made stay, as for a hole that was punched.
    pub fn invalidate<S: ?Sized>(&self, source: &S, pages: Range<u64>) {
        self.take_out(source, &pages, Reach::Files);
    }

    /// Unmaps `pages` from every page table that maps them, as [`Self::invalidate`] does, so that
    /// the next access faults. Used while the file still has the pages. Mappings of locked memory
    /// keep them.
    pub fn ask_again<S: ?Sized>(&self, source: &S, pages: Range<u64>) {
        if self.is_used() {
            self.take_out(source, &pages, Reach::UnlockedFiles);
        }
    }

    /// Unmaps `pages` as [`Self::invalidate`] does, and the programs' private copies too, because
    /// the file was cut.
    pub fn truncate<S: ?Sized>(&self, source: &S, pages: Range<u64>) {
        self.take_out(source, &pages, Reach::All);
    }

    fn take_out<S: ?Sized>(&self, source: &S, pages: &Range<u64>, reach: Reach) {
        let source: *const () = core::ptr::from_ref(source).cast();
        // The last reference to a space may go here: what that drops never walks.
        self.members.walk(|space| {
            if let Some(space) = space.0.upgrade() {
                space.take_out(source, pages, reach);
            }
        });
    }

    /// Makes all spaces except `keeper` give up their private copies of `pages` of the file
    /// `source`. The caller holds no spin lock.
    pub(super) fn surrender<S: ?Sized, K: Shows>(
        &self,
        source: &S,
        pages: &Range<u64>,
        keeper: *const K,
    ) {
        let source: *const () = core::ptr::from_ref(source).cast();
        self.members.walk(|space| {
            if !core::ptr::addr_eq(space.0.as_ptr(), keeper)
                && let Some(space) = space.0.upgrade()
            {
                space.surrender(source, pages);
            }
        });
    }

    /// Counts a mapping that may store, until [`Self::release_stores`].
    ///
    /// # Errors
    /// Fails with `EPERM` once the file denies such mappings.
    pub(super) fn claim_stores(&self) -> Result<(), Errno> {
        let one_more = |stores: u32| (stores & DENIED == 0).then_some(stores + 1);
        // Relaxed (all of `stores`): one word says it all; the order of data comes with the locks
        // under which areas are made and files sealed.
        self.stores
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map(|_| ())
            .map_err(|_| Errno::EPERM)
    }

    /// Ends the count of a mapping that [`Self::claim_stores`] began.
    pub(super) fn release_stores(&self) {
        let before = self.stores.fetch_sub(1, Ordering::Relaxed);
        debug_assert_ne!(before & !DENIED, 0, "more mappings may store than do");
    }

    /// Returns whether the file denies new mappings that may store. Older mappings may still store.
    pub(super) fn denies_stores(&self) -> bool {
        self.stores.load(Ordering::Relaxed) & DENIED != 0
    }

    /// Refuses new mappings that may store from now on; existing ones stay (`F_SEAL_FUTURE_WRITE`).
    pub fn deny_new_stores(&self) {
        self.stores.fetch_or(DENIED, Ordering::Relaxed);
    }

    /// Refuses new mappings that may store from now on, if there is none at present
    /// (`F_SEAL_WRITE`).
    ///
    /// # Errors
    /// Fails with `EBUSY` if a mapping may store.
    pub fn deny_stores(&self) -> Result<(), Errno> {
        let deny = |stores: u32| (stores & !DENIED == 0).then_some(DENIED);
        self.stores
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, deny)
            .map(|_| ())
            .map_err(|_| Errno::EBUSY)
    }
}
