//! The bitmap words whose free frames a per-CPU cache holds. A word has 64 frames.
//!
//! The cache hands out the frames of one word, and frames freed to that word go back into it: the
//! word keeps its entry in the cache while its frames are handed out. So a CPU that allocates and
//! frees again and again touches no shared memory. That does not depend on the contents of the
//! cache, nor on how few frames of a word were free. The cache exchanges words with the bitmap only
//! if frames of more words are in circulation than it has entries.
//!
//! Other freed frames are gathered in the other entries, one word in each. They go back to the
//! bitmap word by word when their entry is needed.

use crate::{
    Frame, Mobility,
    bitmap::{WORD_FRAMES, WORDS},
};

/// The number of entries (the code calls them places). A cache holds frames of at most this many
/// words. At most three of them are words that frames are handed out from, one for each mobility.
///
/// The home of a word is the entry with the word's number modulo this constant, so that a lookup
/// costs one comparison. A word is in another entry if a second word with the same home was freed
/// later.
pub(crate) const PLACES: usize = 8;
/// The entry of no word, which is always empty.
const NOWHERE: usize = PLACES;

/// A set of frames of one bitmap word.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// The number of the word: the number of its first frame divided by 64.
    pub(crate) word: u64,
    /// A bit for each of its frames; 1 = in the set.
    pub(crate) mask: u64,
}

impl Piece {
    /// The empty set, of no word.
    pub(crate) const NONE: Self = Self {
        word: u64::MAX,
        mask: 0,
    };

    /// Returns the set with just `frame`.
    #[inline]
    pub(crate) const fn of(frame: Frame) -> Self {
        Self {
            word: frame.number() / WORD_FRAMES as u64,
            mask: 1 << (frame.number() % WORD_FRAMES as u64),
        }
    }

    /// Returns the number of the frame of bit 0. Without meaning for the empty set of no word.
    #[inline]
    pub(crate) const fn base(self) -> u64 {
        self.word.wrapping_mul(WORD_FRAMES as u64)
    }

    /// Removes the lowest frame and returns it, or `None` if the set is empty.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        if self.mask == 0 {
            return None;
        }
        let frame = self.base() + u64::from(self.mask.trailing_zeros());
        self.mask &= self.mask - 1;
        Some(Frame::new(frame))
    }

    /// Panics if the set has one of the frames in `freed`, as that frame was freed twice.
    #[inline]
    pub(crate) fn check_without(self, freed: u64) {
        let twice = self.mask & freed;
        if twice != 0 {
            freed_twice(Frame::new(self.base() + u64::from(twice.trailing_zeros())));
        }
    }
}

/// Panics because `frame` was freed twice. Out of line, so that the common free path prepares
/// nothing for it.
#[cold]
#[inline(never)]
pub(crate) fn freed_twice(frame: Frame) -> ! {
    panic!("{frame:?} was freed twice")
}

/// The word that frames of one mobility are handed out from.
#[derive(Copy, Clone, Debug)]
struct Slot {
    /// The number of the frame that was freed last and is handed out next, or `NO_FRAME`. To
    /// allocate and free a frame again and again is just a load and a store here, without any
    /// computation in between.
    latest: u64,
    /// The frames that are handed out after `latest`.
    mask: u64,
    /// The number of the frame of bit 0.
    base: u64,
    /// The index of the word's entry. The word keeps it even if it has no frames.
    place: usize,
}

/// The number of no frame, and not of the first frame of a word either.
const NO_FRAME: u64 = u64::MAX;

impl Slot {
    const NONE: Self = Self {
        latest: NO_FRAME,
        mask: 0,
        base: NO_FRAME,
        place: NOWHERE,
    };

    /// Returns all frames of the slot.
    fn piece(self) -> Piece {
        let latest = if self.latest == NO_FRAME {
            0
        } else {
            Piece::of(Frame::new(self.latest)).mask
        };
        Piece {
            word: self.base / u64::from(WORD_FRAMES),
            mask: self.mask | latest,
        }
    }

    /// Returns whether the slot has no frame.
    const fn is_empty(self) -> bool {
        self.mask == 0 && self.latest == NO_FRAME
    }
}

/// The single frames of a per-CPU cache by their bitmap words, each word in one entry.
#[derive(Debug)]
pub(crate) struct Words {
    /// For each mobility, the word that frames are handed out from.
    slots: [Slot; Mobility::COUNT],
    /// The entries of these words, a bit for each.
    slot_places: u16,
    /// The mobility of the last allocation, which is likely to be that of the next free.
    recent: Mobility,
    /// The entries: in each the freed frames of one word.
    places: [Piece; PLACES + 1],
    /// For each mobility, the entries of words that frames were handed out from, a bit for each.
    /// Frames freed to these words are handed out again, however few they are.
    own: [u16; Mobility::COUNT],
    /// The entries whose word is not at home, a bit for each.
    away: u16,
}

impl Words {
    /// Returns an empty set of words.
    pub(crate) const fn new() -> Self {
        Self {
            slots: [Slot::NONE; Mobility::COUNT],
            slot_places: 1 << NOWHERE,
            recent: Mobility::Movable,
            places: [Piece::NONE; PLACES + 1],
            own: [0; Mobility::COUNT],
            away: 0,
        }
    }

    /// Takes a frame out of the bitmap word that this cache hands out frames of `mobility` from.
    /// Returns `None` if the cache has no frame of that word.
    #[inline]
    pub(crate) fn pop(&mut self, mobility: Mobility) -> Option<Frame> {
        self.pop_left(mobility).or_else(|| self.pop_freed(mobility))
    }

    /// Takes the frame freed last, or else the lowest frame, out of the slot of `mobility`. Returns
    /// `None` if the slot is empty, even if the entry of its word has freed frames.
    #[inline]
    pub(crate) fn pop_left(&mut self, mobility: Mobility) -> Option<Frame> {
        self.recent = mobility;
        let slot = &mut self.slots[mobility.index()];
        if slot.latest != NO_FRAME {
            let frame = Frame::new(slot.latest);
            slot.latest = NO_FRAME;
            return Some(frame);
        }
        if slot.mask == 0 {
            return None;
        }
        let frame = slot.base + u64::from(slot.mask.trailing_zeros());
        slot.mask &= slot.mask - 1;
        Some(Frame::new(frame))
    }

    /// Moves the frames that were freed to the entry of the slot's word into the slot of
    /// `mobility`, and takes one. Returns `None` if the entry has none. Out of line, or the common
    /// case would look at them as well.
    #[cold]
    #[inline(never)]
    pub(crate) fn pop_freed(&mut self, mobility: Mobility) -> Option<Frame> {
        let slot = &mut self.slots[mobility.index()];
        let freed = &mut self.places[slot.place];
        if freed.mask == 0 {
            return None;
        }
        let frame = freed.pop();
        slot.mask = core::mem::take(&mut freed.mask);
        frame
    }

    /// Returns whether this cache has no frame left of the bitmap word that it hands out frames of
    /// `mobility` from.
    pub(crate) fn is_used_up(&self, mobility: Mobility) -> bool {
        let slot = self.slots[mobility.index()];
        slot.is_empty() && self.places[slot.place].mask == 0
    }

    /// Returns an upper bound on the number of frames that this cache holds of the pageblock number
    /// `block`. Counts every entry with a word of the pageblock as 64 frames.
    #[inline]
    pub(crate) fn most_of_block(&self, block: u64) -> u64 {
        let inside = |word: u64| u64::from(word / WORDS as u64 == block);
        let places = self.places[..PLACES].iter();
        let words = places.map(|piece| inside(piece.word)).sum::<u64>();
        // A word that frames are handed out from has an entry too.
        words * u64::from(WORD_FRAMES)
    }

    /// Returns all frames that this cache holds. Each occurs once, but those of one bitmap word may
    /// be in several sets.
    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> {
        let slots = self.slots.iter().map(|slot| slot.piece());
        slots.chain(self.places[..PLACES].iter().copied())
    }

    /// Returns the freed frames in the entry `place`. If the cache hands out frames from its word,
    /// those in the slot are not included.
    #[inline]
    pub(crate) fn freed(&self, place: usize) -> Piece {
        self.places[place]
    }

    /// Takes a freed frame out of the entry `place`. Returns `None` if it has none.
    pub(crate) fn pop_at(&mut self, place: usize) -> Option<Frame> {
        self.places[place].pop()
    }

    /// Returns whether this cache handed out frames of the word in the entry `place` for
    /// `mobility`.
    #[inline]
    pub(crate) fn is_own(&self, place: usize, mobility: Mobility) -> bool {
        self.own[mobility.index()] & 1 << place != 0
    }

    /// Notes that frames freed to the entry `place` are to be handed out again for `mobility`.
    #[inline]
    pub(crate) fn note_own(&mut self, place: usize, mobility: Mobility) {
        self.own[mobility.index()] |= 1 << place;
    }

    /// Makes the cache hand out frames of `mobility` from the word in the entry `place`: the frames
    /// in `mask`, and then those freed to the entry. The cache must have no frame left of the word
    /// before.
    #[inline]
    pub(crate) fn hand_out_from(&mut self, place: usize, mask: u64, mobility: Mobility) {
        debug_assert!(self.is_used_up(mobility), "refilled while it holds frames");
        self.slots[mobility.index()] = Slot {
            latest: NO_FRAME,
            mask,
            base: self.places[place].base(),
            place,
        };
        self.note_slots();
        self.note_own(place, mobility);
    }

    /// Updates the set of entries of the words that frames are handed out from.
    #[inline]
    fn note_slots(&mut self) {
        let slots = self.slots.iter();
        self.slot_places = slots.fold(0, |places, slot| places | 1 << slot.place);
    }

    /// Returns the index of the entry in which a word is looked up first.
    #[inline]
    fn home(word: u64) -> usize {
        crate::frame::index(word) % PLACES
    }

    /// Adds a freed frame to this cache, if its bitmap word is the one that frames were last handed
    /// out from or is in its home entry. Returns `false` if the caller must do more: the word is
    /// neither, and the frame was not added, or all frames of the word may be in the cache now.
    /// Panics if the cache has the frame already.
    #[inline]
    pub(crate) fn note_freed(&mut self, frame: Frame) -> bool {
        let freed = Piece::of(frame);
        // The location of the store must not depend on the frame: the next allocation would wait
        // until it is computed.
        let slot = &mut self.slots[self.recent.index()];
        if slot.base == freed.base() {
            if slot.mask & freed.mask != 0 || slot.latest == frame.number() {
                freed_twice(frame);
            }
            let at = self.places[slot.place];
            at.check_without(freed.mask);
            if slot.latest == NO_FRAME {
                slot.latest = frame.number();
                return true;
            }
            slot.mask |= freed.mask;
            let here = slot.mask | at.mask;
            // `latest` is not among them.
            return here | here.wrapping_add(1) != !0;
        }
        let home = Self::home(freed.word);
        let at = &mut self.places[home];
        if at.word != freed.word {
            return false;
        }
        if self.slot_places & 1 << home != 0 {
            return self.note_freed_beside(freed);
        }
        at.check_without(freed.mask);
        at.mask |= freed.mask;
        at.mask != !0
    }

    /// Adds freed frames to a word in its home entry, if a slot may have frames of it too: frames
    /// freed before frames were handed out for another mobility. Returns `false` if all frames of
    /// the word are in the cache now.
    #[inline(never)]
    fn note_freed_beside(&mut self, freed: Piece) -> bool {
        let home = Self::home(freed.word);
        self.note_freed_at(home, freed.mask);
        self.all_at(home) != !0
    }

    /// Adds the freed frames in `mask` to the entry `place`. Panics if the cache has one of them
    /// already.
    pub(crate) fn note_freed_at(&mut self, place: usize, mask: u64) {
        let at = &mut self.places[place];
        at.check_without(mask);
        at.mask |= mask;
        // The frames in slots are not allocated, so no caller can free them.
        let slots = self.slots.iter().filter(|slot| slot.place == place);
        slots.for_each(|slot| slot.piece().check_without(mask));
    }

    /// Returns whether [`note_freed`](Self::note_freed) adds frames of this word.
    pub(crate) fn notes(&self, word: u64) -> bool {
        let recent = self.slots[self.recent.index()].base;
        self.places[Self::home(word)].word == word || recent == Piece { word, mask: 0 }.base()
    }

    /// Returns whether this cache holds all 64 frames of bitmap word `word`.
    pub(crate) fn is_whole(&self, word: u64) -> bool {
        let place = self.places.iter().position(|place| place.word == word);
        place.is_some_and(|place| self.all_at(place) == !0)
    }

    /// Returns the frames of the word in an entry: the freed ones, and those that are handed out
    /// next.
    fn all_at(&self, place: usize) -> u64 {
        let slots = self.slots.iter().filter(|slot| slot.place == place);
        slots.fold(self.places[place].mask, |all, slot| all | slot.piece().mask)
    }

    /// Returns the entry of bitmap word `word`, which is its home. A word without an entry gets
    /// one. The second result has the frames of the word that lost its entry: the caller must
    /// return them to the bitmap.
    #[inline]
    pub(crate) fn place(&mut self, word: u64) -> (usize, Piece) {
        let home = Self::home(word);
        let at = self.places[home];
        if at.word == word {
            return (home, Piece::NONE);
        }
        let is_slot = self.slot_places & 1 << home != 0;
        if at.mask == 0 && !is_slot && self.find_away(word).is_none() {
            // Mostly its home is unused.
            self.forget(home);
            self.places[home] = Piece { word, mask: 0 };
            return (home, Piece::NONE);
        }
        self.place_anew(word)
    }

    /// Finds or makes an entry for a word that is not at home, and exchanges it with that at its
    /// home.
    fn place_anew(&mut self, word: u64) -> (usize, Piece) {
        let mut displaced = Piece::NONE;
        let place = self.find_away(word).unwrap_or_else(|| {
            let place = self.vacant(word);
            self.forget(place);
            let new = Piece { word, mask: 0 };
            displaced = core::mem::replace(&mut self.places[place], new);
            place
        });
        let home = Self::home(word);
        if place != home {
            self.exchange(place, home);
        }
        (home, displaced)
    }

    /// Exchanges the words of two entries. The next lookup of the word that moves to `home` finds
    /// it at once.
    fn exchange(&mut self, place: usize, home: usize) {
        self.places.swap(place, home);
        for own in &mut self.own {
            let differ = (*own >> place ^ *own >> home) & 1;
            *own ^= differ << place | differ << home;
        }
        for slot in &mut self.slots {
            if slot.place == home {
                slot.place = place;
            } else if slot.place == place {
                slot.place = home;
            }
        }
        self.note_slots();
        for at in [place, home] {
            let word = self.places[at].word;
            let is_away = word != Piece::NONE.word && Self::home(word) != at;
            self.away = self.away & !(1 << at) | u16::from(is_away) << at;
        }
    }

    /// Returns the entry of a word that has one and is not at home, or `None`.
    #[inline]
    fn find_away(&self, word: u64) -> Option<usize> {
        let mut away = self.away;
        while away != 0 {
            let place = away.trailing_zeros() as usize;
            if self.places[place].word == word {
                return Some(place);
            }
            away &= away - 1;
        }
        None
    }

    /// Returns the entry for a word without one: its home if that is empty, else an empty entry,
    /// else its home, else any. Never an entry that frames are handed out from.
    fn vacant(&self, word: u64) -> usize {
        let home = Self::home(word);
        let may = !self.slot_places;
        if self.places[home].mask == 0 && may & 1 << home != 0 {
            return home;
        }
        let mut empty = 0;
        for (place, piece) in self.places[..PLACES].iter().enumerate() {
            empty |= u16::from(piece.mask == 0) << place;
        }
        let choice = if empty & may != 0 {
            empty & may
        } else if may & 1 << home != 0 {
            1 << home
        } else {
            may
        };
        choice.trailing_zeros() as usize
    }

    /// Takes all frames of the bitmap word in the entry `place` out of the cache, and frees the
    /// entry.
    pub(crate) fn empty(&mut self, place: usize) -> Piece {
        self.forget(place);
        let mut piece = core::mem::replace(&mut self.places[place], Piece::NONE);
        for slot in &mut self.slots {
            if slot.place == place {
                let left = slot.piece().mask;
                piece.check_without(left);
                piece.mask |= left;
                *slot = Slot::NONE;
            }
        }
        self.note_slots();
        piece
    }

    /// Clears the marks of an entry.
    #[inline]
    fn forget(&mut self, place: usize) {
        let others = !(1 << place);
        self.away &= others;
        for own in &mut self.own {
            *own &= others;
        }
    }

    /// Takes all frames of the bitmap word that frames of `mobility` are handed out from out of the
    /// cache, and frees its entry.
    pub(crate) fn empty_slot(&mut self, mobility: Mobility) -> Piece {
        match self.slots[mobility.index()].place {
            NOWHERE => Piece::NONE,
            place => self.empty(place),
        }
    }

    /// Returns whether the entry `place` has frames, and `inside` accepts the number of its word's
    /// first frame.
    pub(crate) fn has(&self, place: usize, inside: impl Fn(u64) -> bool) -> bool {
        self.all_at(place) != 0 && inside(self.places[place].base())
    }
}

const _: () = assert!(Mobility::COUNT < PLACES && PLACES <= u16::BITS as usize);
