//! Who maps a file, and how a walk meets each of them exactly once. No hardware in it: a loom model
//! runs this very file.
//!
//! A file that drops pages must take them out of every page table that shows them. Page tables
//! change meanwhile: faults put pages in, `fork` copies entries to a new space, `mremap` moves them
//! within one. The protocol:
//!
//! 1. The file drops its pages first, or marks them so that they are asked for again.
//! 2. The walk raises [`Members::sequence`], then visits the members in the order of the list, each
//!    with its space's lock held while entries are taken out.
//! 3. A **fault** gets a page with no lock held. It puts the page in under the space's lock, and only
//!    if the sequence is what it was before: either the walk finds the entry, or the fault finds the
//!    new number.
//! 4. A **fork** has the child [`Members::follow`] before the first entry is copied. That waits until
//!    no walk is under way. A walk comes to members in the order of their numbers, and a child has a
//!    greater one than its parent. An entry is copied under both
//!    spaces' locks. If the walk has been at the parent, there is nothing to copy; if not, it comes to
//!    the child after the parent.
//! 5. A **move** holds [`Members::keep_out`] from before the first entry leaves its old place until
//!    the last one is at its new place: no walk sees the space half-way.
//! 6. An **unmap** takes the area away before its entries, and says under the space's lock which range
//!    is leaving until they are gone. The walk, having been at the areas, takes its pages out of that
//!    range too: when it is over, nobody shows them.
//! 7. A member never leaves before its space goes: a space that its file has forgotten, or that
//!    nobody refers to, is met no more. A walk goes from number to number, so places may move, come
//!    and go meanwhile.
//!
//! Locks, from the outside in: a space's `change`, `walking`, a space's `state`; `list` is taken
//! last and for moments. Nobody waits for memory with `walking` held: what frees memory walks.

use crate::errno::Errno;
use crate::lock::Lock;
use alloc::vec::Vec;
#[cfg(not(ebb_model))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// There was no memory for the list.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NoMemory;

impl From<NoMemory> for Errno {
    fn from(_: NoMemory) -> Self {
        Self::ENOMEM
    }
}

/// A member, as the list knows it.
pub trait Member: Clone {
    /// Whether its space is gone for good.
    fn is_gone(&self) -> bool;
    /// The number of its space, which no other has had: that of a child is greater than its parent's.
    fn number(&self) -> u64;
}

/// A member's place in the list, by its number; without the member: it is vacant.
pub type Place<M> = (u64, Option<M>);

/// The members of one file, in the order of their numbers, which is that of walks: `L` guards their list and is held for moments, `W`
/// is held while a walk waits for others.
#[derive(Debug, Default)]
pub struct Members<L, W> {
    list: L,
    /// Held by a walk, and by who must not be met by one half-way.
    walking: W,
    /// Goes up before each walk.
    sequence: AtomicU64,
}

impl<L, W> Members<L, W> {
    /// Those in `list`, which is empty as a rule.
    #[cfg(not(ebb_model))]
    pub const fn new(list: L, walking: W) -> Self {
        Self {
            list,
            walking,
            sequence: AtomicU64::new(0),
        }
    }

    /// Those in `list`, which is empty as a rule.
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
    /// A space that shows nothing of the file yet becomes a member, if it is none: whatever it will
    /// show comes by faults.
    ///
    /// # Errors
    /// [`NoMemory`].
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
            // Before it grows, which is seldom: those that went without a word.
            list.retain(|place| !is_vacant(place));
            place = list.partition_point(|place| place.0 < number);
            list.try_reserve(1).map_err(|_| NoMemory)?;
        }
        list.insert(place, (number, Some(member)));
        Ok(())
    }

    /// A new space becomes a member that is about to copy what another member shows. Waits for a walk
    /// that is under way.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn follow(&self, child: M) -> Result<(), NoMemory> {
        let _walking = self.walking.lock();
        self.join(child)
    }

    /// The member with this number has its space gone: the list keeps nothing of it, and nothing at
    /// all of the last one.
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

    /// The list, for tests.
    #[cfg(all(test, not(ebb_model)))]
    pub(super) fn list(&self) -> &L {
        &self.list
    }

    /// Whether there is any member.
    pub fn any(&self) -> bool {
        self.list.lock().iter().any(|place| !is_vacant(place))
    }

    /// The number of walks so far, by which faults know that they must look again.
    pub fn sequence(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `walk`; who reads the new number finds the file changed.
        self.sequence.load(Ordering::Acquire)
    }

    /// Keeps walks out for as long as the guard lives. The holder does not wait for memory.
    pub fn keep_out(&self) -> W::Guard<'_> {
        self.walking.lock()
    }

    /// Visits each member once, after the file has changed. `visit` may be handed members that are
    /// gone. Waits for other walks; no spin lock is held.
    pub fn walk(&self, mut visit: impl FnMut(M)) {
        // AcqRel: the file's change comes before it; pairs with the Acquire in `sequence`.
        self.sequence.fetch_add(1, Ordering::AcqRel);
        let _walking = self.walking.lock();
        // Who joins from here on has only what faults bring it.
        let Some(last) = self.list.lock().last().map(|place| place.0) else {
            return;
        };
        let mut next = Some(0);
        // Ends with the greatest number that there is now.
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
