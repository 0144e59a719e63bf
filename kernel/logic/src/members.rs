//! The members of a file, which are the address spaces that map it, and a walk that visits each of
//! them exactly once. The code needs no hardware: a loom model runs this very file.
//!
//! A file that drops pages must remove them from every page table that shows them. Page tables
//! change at the same time: faults insert pages, `fork` copies entries to a new space, `mremap`
//! moves entries within a space. The protocol:
//!
//! 1. The file first drops its pages, or marks them so that faults ask for them again.
//! 2. The walk raises [`Members::sequence`], then visits the members in the order of the list. It
//!    holds the lock of each member's space while it removes entries there.
//! 3. A **fault** gets a page with no lock held. It inserts the page under the space's lock, and
//!    only if the sequence has not changed. So either the walk finds the entry, or the fault finds
//!    the new sequence number.
//! 4. A **fork** makes the child [`Members::follow`] before it copies the first entry. That waits
//!    until no walk is running. A walk visits members in the order of their numbers, and a child
//!    has a greater number than its parent. The fork copies an entry under both spaces' locks. If
//!    the walk has visited the parent, there is nothing to copy. If not, it visits the child after
//!    the parent.
//! 5. A **move** holds [`Members::keep_out`] from before the first entry leaves its old place until
//!    the last one is at its new place. No walk sees the space half-way.
//! 6. An **unmap** removes the area before its entries. Until the entries are gone, it publishes
//!    under the space's lock which range is being unmapped. The walk removes its pages from that
//!    range too, after the areas. When the walk ends, no space shows the pages.
//! 7. A member never leaves before its space is freed. The walk no longer visits a space that its
//!    file has forgotten or that has no references left. A walk goes from number to number, so
//!    places may move, appear and disappear at the same time.
//!
//! Lock order, outermost first: a space's `change`, `walking`, a space's `state`. `list` is taken
//! last and for moments. No task waits for memory with `walking` held, because reclaim itself
//! walks.

use crate::errno::Errno;
use crate::lock::Lock;
use alloc::vec::Vec;
#[cfg(not(ebb_model))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// The error if memory for the list of members is short.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NoMemory;

impl From<NoMemory> for Errno {
    fn from(_: NoMemory) -> Self {
        Self::ENOMEM
    }
}

/// An address space that maps the file, as far as the list needs it.
pub trait Member: Clone {
    /// Returns whether the address space no longer exists, because its last reference was dropped.
    fn is_gone(&self) -> bool;
    /// Returns the number of the address space. Numbers are never reused, and a child's number is
    /// greater than its parent's.
    fn number(&self) -> u64;
}

/// A place in the list: the number of an address space and the member. `None` marks a vacant place.
pub type Place<M> = (u64, Option<M>);

/// The members of one file in the order of their numbers, in which walks visit them. `L` guards the
/// list and is held for moments. `W` is held for a whole walk, which may sleep.
#[derive(Debug, Default)]
pub struct Members<L, W> {
    list: L,
    /// Held by a walk, and by operations that a walk must not see half-way.
    walking: W,
    /// Incremented before each walk.
    sequence: AtomicU64,
}

impl<L, W> Members<L, W> {
    /// Returns the members in `list`, which is usually empty. `walking` is the lock of the walks.
    #[cfg(not(ebb_model))]
    pub const fn new(list: L, walking: W) -> Self {
        Self {
            list,
            walking,
            sequence: AtomicU64::new(0),
        }
    }

    /// Returns the members in `list`, which is usually empty. `walking` is the lock of the walks.
    #[cfg(ebb_model)]
    pub fn new(list: L, walking: W) -> Self {
        Self {
            list,
            walking,
            sequence: AtomicU64::new(0),
        }
    }
}

impl<M: Member, L: Lock<Value = Vec<Place<M>>>, W: Lock<Value = ()>> Members<L, W> {
    /// Adds the address space `member`, unless it is a member already. No page table of this space
    /// may map a page of the file yet. Only faults may add such entries later.
    ///
    /// # Errors
    /// [`NoMemory`] if the list cannot grow.
    pub fn join(&self, member: M) -> Result<(), NoMemory> {
        let number = member.number();
        let mut list = self.list.lock();
        let mut place = match list.binary_search_by_key(&number, |place| place.0) {
            Ok(place) => {
                list[place].1.get_or_insert(member);
                return Ok(());
            }
            Err(place) => place,
        };
        if list.len() == list.capacity() {
            // The list seldom grows. Before it does, it drops the spaces that went without calling
            // `leave`.
            list.retain(|place| !is_vacant(place));
            place = list.partition_point(|place| place.0 < number);
            list.try_reserve(1).map_err(|_| NoMemory)?;
        }
        list.insert(place, (number, Some(member)));
        Ok(())
    }

    /// Adds the address space `child` before it copies the entries of another member. Waits until a
    /// running walk has ended.
    ///
    /// # Errors
    /// [`NoMemory`] if the list cannot grow.
    pub fn follow(&self, child: M) -> Result<(), NoMemory> {
        let _walking = self.walking.lock();
        self.join(child)
    }

    /// Removes the member with this `number`, whose address space no longer exists. Does nothing if
    /// there is no such member. Its place in the list may stay vacant while members follow it. The
    /// list frees its memory with its last member.
    pub fn leave(&self, number: u64) {
        let mut list = self.list.lock();
        let Ok(place) = list.binary_search_by_key(&number, |place| place.0) else {
            return;
        };
        let member = list[place].1.take();
        while list.last().is_some_and(is_vacant) {
            list.pop();
        }
        let emptied = list.is_empty().then(|| core::mem::take(&mut *list));
        drop(list);
        drop((member, emptied));
    }

    /// Returns the list, for tests.
    #[cfg(all(test, not(ebb_model)))]
    pub(super) fn list(&self) -> &L {
        &self.list
    }

    /// Returns whether any member is left whose address space still exists.
    pub fn any(&self) -> bool {
        self.list.lock().iter().any(|place| !is_vacant(place))
    }

    /// Returns the number of walks that have begun. If the number has changed during a fault, the
    /// fault must look the page up again.
    pub fn sequence(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `walk`. A reader of the new number finds the file
        // changed.
        self.sequence.load(Ordering::Acquire)
    }

    /// Keeps walks from starting as long as the guard lives. Waits until a running walk has ended.
    /// The holder of the guard must not wait for memory.
    pub fn keep_out(&self) -> W::Guard<'_> {
        self.walking.lock()
    }

    /// Calls `visit` once with each member, in the order of their numbers. Call this after the file
    /// has changed. `visit` may receive members whose address space no longer exists. Waits for
    /// other walks; holds no spin lock while it calls `visit`.
    pub fn walk(&self, mut visit: impl FnMut(M)) {
        // AcqRel: the file's change comes before; pairs with the Acquire in `sequence`.
        self.sequence.fetch_add(1, Ordering::AcqRel);
        let _walking = self.walking.lock();
        // A space that joins from here on has only entries that faults inserted.
        let Some(last) = self.list.lock().last().map(|place| place.0) else {
            return;
        };
        let mut next = Some(0);
        // The walk ends with the greatest number at its beginning.
        while let Some(from) = next.filter(|from| *from <= last) {
            let list = self.list.lock();
            let place = list.partition_point(|place| place.0 < from);
            let found = list.get(place).cloned();
            drop(list);
            let Some((number, member)) = found.filter(|(number, _)| *number <= last) else {
                return;
            };
            if let Some(member) = member {
                visit(member);
            }
            next = number.checked_add(1);
        }
    }
}

fn is_vacant<M: Member>((_, member): &Place<M>) -> bool {
    member.as_ref().is_none_or(M::is_gone)
}
