//! Finds the page tables that map a frame of private memory.
//!
//! There is no list of entries for each frame, since a fault would pay for it. The descriptor has
//! one word, written with the first store to the page. It holds the *family* of spaces that the
//! frame belongs to, the member that allocated the frame, and the address. A family is a program's
//! space and those forked from it. `fork` copies addresses, so all members map the frame at that
//! address. The frame's count of references tells when all entries are found.
//!
//! A frame that `mremap` has moved is not at the address of its word. When that matters, `moving`
//! searches the tables for the frame.

use super::AddressSpace;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use logic::radix::RadixTree;
use machine::sync::SpinLock;

/// The bits of an owner word, the word of a frame's descriptor that says where the frame is mapped,
/// that hold the address: a page in the user's half of the addresses.
const ADDRESS: u64 = 0x0000_7fff_ffff_f000;
/// The lowest bit of the family's number in a word. The member's place is in the bits below the
/// address.
const FAMILY_SHIFT: u32 = 47;
const FAMILIES: u64 = 1 << (64 - FAMILY_SHIFT);
const PLACES: u64 = 1 << 12;
/// The number of attempts to find a free number for a family, which otherwise has none.
const TRIES: u64 = 64;
/// The most members that are asked for one frame. A frame that more members may map does not move.
const MEMBERS_ASKED: usize = 64;

/// The families that exist, by their numbers.
static ALL: SpinLock<RadixTree<Weak<Family>>> = SpinLock::new(RadixTree::new());
/// The number to try next for a new family.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A program's address space and all spaces that descend from it by `fork`: the members, each with
/// an index, its place. Members map a shared private frame at the same address, unless `mremap` has
/// moved it. So the members' page tables are searched for the entries of a frame that compaction
/// moves.
pub(super) struct Family {
    /// The number of the family in owner words. 0 if none was free; frames of the family then
    /// cannot move.
    number: u64,
    members: SpinLock<Members>,
}

/// The identity of a space among all that exist: the number of its family, and its place there.
/// An owner word has only the low bits of the place, so it may name several members.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Member {
    family: u64,
    place: usize,
}

impl Member {
    /// Returns the space, or `None` if it is gone.
    pub(super) fn space(self) -> Option<Arc<AddressSpace>> {
        let family = ALL.lock().get(self.family).and_then(Weak::upgrade)?;
        let members = family.members.lock();
        members
            .places
            .get(self.place)?
            .as_ref()
            .and_then(Weak::upgrade)
    }
}

struct Members {
    places: Vec<Option<Weak<AddressSpace>>>,
    /// An index below which all places are taken.
    first_vacant: usize,
}

impl Family {
    /// Creates a family without members.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
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

    /// Returns the number of the family in owner words, or 0 if it has none.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the family that the owner word `word` names. Returns `None` if the word names none,
    /// or the family does not exist any more.
    pub(super) fn of(word: Owner) -> Option<Arc<Self>> {
        ALL.lock().get(word.family()).and_then(Weak::upgrade)
    }

    /// Reserves a place for a space that is being created, and returns the index of the place.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
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

    /// Makes `space` the member at the index `place`, which [`Self::reserve`] has returned. From
    /// now on compaction finds the entries that map the space's frames, and can move them.
    pub(super) fn join(&self, place: usize, space: &Arc<AddressSpace>) {
        self.members.lock().places[place] = Some(Arc::downgrade(space));
    }

    /// Frees the index `place`, which was reserved or is that of a member that ends.
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

    /// Returns the identity of the space at `place`. Returns `None` if the family has no number.
    pub(super) fn member(&self, place: usize) -> Option<Member> {
        (self.number != 0).then_some(Member {
            family: self.number,
            place,
        })
    }

    /// Returns the tag of the space at `place`: the bits of an owner word ([`Owner`]) that name
    /// this family and the member, with the address 0. Returns 0 if the family has no number.
    pub(super) fn tag(&self, place: usize) -> u64 {
        if self.number == 0 {
            return 0;
        }
        (self.number << FAMILY_SHIFT) | (place as u64 % PLACES)
    }

    /// Calls `ask` with members of the family, one by one, until `ask` returns `true` or was called
    /// [`MEMBERS_ASKED`] times. The first member is the one that the owner word `word` names, if it
    /// still exists. No lock is held during a call.
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

/// The owner word in the descriptor of a frame: it names a [`Family`], the member that allocated
/// the frame, and the address at which the member maps it. It is 0 if the frame has no known owner.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Owner(pub(super) u64);

impl Owner {
    /// Returns the owner word for the frame of the page at address `page`. `tag` is the space's tag
    /// ([`Family::tag`]).
    #[inline]
    pub(super) const fn new(tag: u64, page: u64) -> Self {
        // Without a family the address has no use.
        Self(tag | page)
    }

    /// Returns whether the word names a family. If not, the page tables that map the frame cannot
    /// be found.
    pub(super) const fn is_known(self) -> bool {
        self.family() != 0
    }

    /// Returns the number of the family, or 0 if the word names none.
    pub(super) const fn family(self) -> u64 {
        self.0 >> FAMILY_SHIFT
    }

    /// Returns the address of the page in the member's space.
    pub(super) const fn page(self) -> u64 {
        self.0 & ADDRESS
    }
}
