//! From a frame of private memory to the page tables that show it.
//!
//! There is no list of entries for each frame, since a fault would pay for it. The descriptor has
//! one word, written with the first store to the page: the *family* of spaces that the frame
//! belongs to, the member that got it, and the address. A family is a program's space and those
//! forked from it. `fork` copies addresses, so all members map the frame at that address; the
//! frame's count of references tells when all entries are found.
//!
//! A frame that `mremap` has moved is not at the address of its word. When it matters, `moving`
//! searches the tables for it.

use super::AddressSpace;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use logic::radix::RadixTree;
use machine::sync::SpinLock;

/// The bits of an address that a word holds: a page of the user's half.
const ADDRESS: u64 = 0x0000_7fff_ffff_f000;
/// The family's number is above them, the member's place below.
const FAMILY_SHIFT: u32 = 47;
const FAMILIES: u64 = 1 << (64 - FAMILY_SHIFT);
const PLACES: u64 = 1 << 12;
/// The number of attempts to find a free number for a family, which otherwise has none.
const TRIES: u64 = 64;
/// The most members that are asked for one frame. A frame with more of them does not move.
const MEMBERS_ASKED: usize = 64;

/// The families that exist, by their numbers.
static ALL: SpinLock<RadixTree<Weak<Family>>> = SpinLock::new(RadixTree::new());
/// The number to be tried next.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A program's space and those forked from it.
pub(super) struct Family {
    /// 0: there was no number left. Its memory does not move.
    number: u64,
    members: SpinLock<Members>,
}

struct Members {
    places: Vec<Option<Weak<AddressSpace>>>,
    /// Below this all places are taken.
    first_vacant: usize,
}

impl Family {
    /// One without members.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>, Errno> {
        let mut out_of_memory = false;
        let family = Arc::new_cyclic(|own: &Weak<Self>| {
            let number = Self::register(own);
            out_of_memory = number.is_err();
            Self {
                number: number.unwrap_or(0),
                members: SpinLock::new(Members {
                    places: Vec::new(),
                    first_vacant: 0,
                }),
            }
        });
        if out_of_memory {
            return Err(Errno::ENOMEM);
        }
        Ok(family)
    }

    fn register(own: &Weak<Self>) -> Result<u64, Errno> {
        for _ in 0..TRIES {
            // Relaxed: only has to be different most of the time.
            let number = NEXT.fetch_add(1, Ordering::Relaxed) % FAMILIES;
            let mut all = ALL.lock();
            if number != 0 && all.get(number).is_none() {
                all.insert(number, own.clone()).map_err(|_| Errno::ENOMEM)?;
                return Ok(number);
            }
        }
        Ok(0)
    }

    /// Its number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The family that a frame's word names.
    pub(super) fn of(word: Owner) -> Option<Arc<Self>> {
        ALL.lock().get(word.family()).and_then(Weak::upgrade)
    }

    /// Reserves a place for a space that is being made.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn reserve(&self) -> Result<usize, Errno> {
        let mut guard = self.members.lock();
        let Members {
            places,
            first_vacant,
        } = &mut *guard;
        let vacant = places[*first_vacant..].iter().position(Option::is_none);
        let place = vacant.map_or(places.len(), |at| *first_vacant + at);
        // A reference that leads nowhere marks a place that is reserved.
        let reserved = Some(Weak::new());
        if place == places.len() {
            places.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            places.push(reserved);
        } else {
            places[place] = reserved;
        }
        *first_vacant = place + 1;
        Ok(place)
    }

    /// Has a space be found from here on, in the place that was reserved for it.
    pub(super) fn join(&self, place: usize, space: &Arc<AddressSpace>) {
        self.members.lock().places[place] = Some(Arc::downgrade(space));
    }

    /// Gives a place back.
    pub(super) fn leave(&self, place: usize) {
        let mut members = self.members.lock();
        let gone = members.places[place].take();
        while members.places.last().is_some_and(Option::is_none) {
            members.places.pop();
        }
        members.first_vacant = members.first_vacant.min(place).min(members.places.len());
        drop(members);
        // Its memory may go with it.
        drop(gone);
    }

    /// What a space's frames have in their words, besides the address.
    pub(super) fn tag(&self, place: usize) -> u64 {
        if self.number == 0 {
            return 0;
        }
        (self.number << FAMILY_SHIFT) | (place as u64 % PLACES)
    }

    /// Calls `ask` with members, first with the one that `word` names, until it returns `true` or
    /// [`MEMBERS_ASKED`] members have been asked.
    pub(super) fn ask(&self, word: Owner, mut ask: impl FnMut(&Arc<AddressSpace>) -> bool) {
        let hint = (word.0 % PLACES) as usize;
        let mut asked = 0;
        let mut at = |place: usize| {
            // Not held while the space is asked, or dropped.
            let member = {
                let members = self.members.lock();
                let member = members.places.get(place)?;
                member.as_ref().and_then(Weak::upgrade)
            };
            asked += usize::from(member.is_some());
            Some(member.is_some_and(|space| ask(&space)) || asked == MEMBERS_ASKED)
        };
        if at(hint) == Some(true) {
            return;
        }
        for place in 0.. {
            if place != hint && at(place).unwrap_or(true) {
                return;
            }
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if self.number != 0 {
            let mut gone = [None];
            ALL.lock()
                .take_batch(self.number, self.number + 1, &mut gone);
        }
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// The word of a frame that names its owner; 0 if it has none.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Owner(pub(super) u64);

impl Owner {
    /// A page of the space with this tag.
    #[inline]
    pub(super) const fn new(tag: u64, page: u64) -> Self {
        // Without a family the address has no use.
        Self(tag | page)
    }

    /// Whether there is a family to ask.
    pub(super) const fn is_known(self) -> bool {
        self.family() != 0
    }

    /// The number of the family.
    pub(super) const fn family(self) -> u64 {
        self.0 >> FAMILY_SHIFT
    }

    /// The address of the page.
    pub(super) const fn page(self) -> u64 {
        self.0 & ADDRESS
    }
}
