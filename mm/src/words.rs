//! The words of the bitmap of which a front holds frames.
//!
//! Frames are handed out from a word and, when they are freed, go back into it, for the word keeps
//! its place in the front while frames are handed out from it. So whoever takes and frees again and
//! again touches nothing shared, whatever the front held before and however few frames of a word
//! there were: words are exchanged with the bitmap only when frames of more words go round than there
//! are places.
//!
//! What else is freed is gathered in the other places, a word in each, and goes back to the bitmap
//! word by word as places are needed.

use crate::{
    Frame, Mobility,
    bitmap::{WORD_FRAMES, WORDS},
};

/// Words of which a front holds frames at a time. Frames are handed out from three of them at most,
/// one for each mobility. A word's home is its number modulo this, so that looking costs one
/// comparison; it is elsewhere if another with the same home was freed later.
pub(crate) const PLACES: usize = 8;
/// The place of no word: it is always empty.
const NOWHERE: usize = PLACES;

/// Frames of one word.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// The word: the frames' numbers divided by 64.
    pub(crate) word: u64,
    /// Which of its frames.
    pub(crate) mask: u64,
}

impl Piece {
    /// Of no word.
    pub(crate) const NONE: Self = Self {
        word: u64::MAX,
        mask: 0,
    };

    /// The piece that is this frame.
    #[inline]
    pub(crate) const fn of(frame: Frame) -> Self {
        Self {
            word: frame.number() / WORD_FRAMES as u64,
            mask: 1 << (frame.number() % WORD_FRAMES as u64),
        }
    }

    /// Number of the frame of bit 0, if there is any frame.
    #[inline]
    pub(crate) const fn base(self) -> u64 {
        self.word.wrapping_mul(WORD_FRAMES as u64)
    }

    /// Takes the lowest frame out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        if self.mask == 0 {
            return None;
        }
        let frame = self.base() + u64::from(self.mask.trailing_zeros());
        self.mask &= self.mask - 1;
        Some(Frame::new(frame))
    }

    /// Panics if it has one of these frames, which are freed: they were freed before.
    #[inline]
    pub(crate) fn check_without(self, freed: u64) {
        let twice = self.mask & freed;
        if twice != 0 {
            freed_twice(Frame::new(self.base() + u64::from(twice.trailing_zeros())));
        }
    }
}

/// Out of line, so that the common free has nothing to prepare for it.
#[cold]
#[inline(never)]
pub(crate) fn freed_twice(frame: Frame) -> ! {
    panic!("{frame:?} was freed twice")
}

/// A word that frames are handed out from.
#[derive(Copy, Clone, Debug)]
struct Slot {
    /// Number of a freed frame, which is handed out next. To take a frame and free it again and again
    /// is to load and store this, with nothing to work out in between. `NO_FRAME` if there is none.
    latest: u64,
    /// Frames that are handed out then.
    mask: u64,
    /// Number of the frame of bit 0.
    base: u64,
    /// The word's place. It keeps it, empty or not.
    place: usize,
}

/// The number of no frame, nor of the first of a word.
const NO_FRAME: u64 = u64::MAX;

impl Slot {
    const NONE: Self = Self {
        latest: NO_FRAME,
        mask: 0,
        base: NO_FRAME,
        place: NOWHERE,
    };

    /// All that there is.
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

    const fn is_empty(self) -> bool {
        self.mask == 0 && self.latest == NO_FRAME
    }
}

/// The words, each in one place.
#[derive(Debug)]
pub(crate) struct Words {
    /// For each mobility the word that frames are handed out from.
    slots: [Slot; Mobility::COUNT],
    /// The places of these words, a bit for each.
    slot_places: u16,
    /// The mobility that a frame was last handed out for: it is likely to be the next that is freed.
    recent: Mobility,
    /// In each place freed frames of a word.
    places: [Piece; PLACES + 1],
    /// For each mobility the places, a bit for each, of words that frames were handed out from:
    /// those that come back are handed out again, however few.
    own: [u16; Mobility::COUNT],
    /// The places of words that are not at home.
    away: u16,
}

impl Words {
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

    /// Takes a frame of the word that frames are handed out from.
    #[inline]
    pub(crate) fn pop(&mut self, mobility: Mobility) -> Option<Frame> {
        self.pop_left(mobility).or_else(|| self.pop_freed(mobility))
    }

    /// Takes the latest that was freed, or the lowest.
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

    /// Goes on with those that were freed to its place. Out of line, or the common case would look
    /// at them as well.
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

    /// Whether no frame of the word that frames are handed out from is left.
    pub(crate) fn is_used_up(&self, mobility: Mobility) -> bool {
        let slot = self.slots[mobility.index()];
        slot.is_empty() && self.places[slot.place].mask == 0
    }

    /// At least as many frames as there are of the pageblock with this number: what there is in places
    /// counts as whole words.
    #[inline]
    pub(crate) fn most_of_block(&self, block: u64) -> u64 {
        let inside = |word: u64| u64::from(word / WORDS as u64 == block);
        let places = self.places[..PLACES].iter();
        let words = places.map(|piece| inside(piece.word)).sum::<u64>();
        // A word that frames are handed out from is in a place, too.
        words * u64::from(WORD_FRAMES)
    }

    /// What there is: each frame once, but for words in several pieces.
    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> {
        let slots = self.slots.iter().map(|slot| slot.piece());
        slots.chain(self.places[..PLACES].iter().copied())
    }

    /// The freed frames in a place. Those of a word that frames are handed out from come with it.
    #[inline]
    pub(crate) fn freed(&self, place: usize) -> Piece {
        self.places[place]
    }

    /// Takes one of these.
    pub(crate) fn pop_at(&mut self, place: usize) -> Option<Frame> {
        self.places[place].pop()
    }

    /// Whether frames of this place were handed out for this mobility.
    #[inline]
    pub(crate) fn is_own(&self, place: usize, mobility: Mobility) -> bool {
        self.own[mobility.index()] & 1 << place != 0
    }

    /// What comes back to this place is handed out again for this mobility.
    #[inline]
    pub(crate) fn note_own(&mut self, place: usize, mobility: Mobility) {
        self.own[mobility.index()] |= 1 << place;
    }

    /// Frames are handed out from this place from here on: these, and what is freed there.
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

    /// Notes which places the slots' words are in.
    #[inline]
    fn note_slots(&mut self) {
        let slots = self.slots.iter();
        self.slot_places = slots.fold(0, |places, slot| places | 1 << slot.place);
    }

    #[inline]
    fn home(word: u64) -> usize {
        crate::frame::index(word) % PLACES
    }

    /// Notes a freed frame of the word that frames were last handed out from, or whose word is at
    /// home; false if it is neither, or if with this frame all of the word may have been freed.
    #[inline]
    pub(crate) fn note_freed(&mut self, frame: Frame) -> bool {
        let freed = Piece::of(frame);
        // Where the frame is stored must not depend on which it is, or whoever takes it next waits for
        // that to be worked out.
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
            // The latest is not among them.
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

    /// The same for a word at home of which a slot may have some: what was freed to it before frames
    /// were handed out for another mobility.
    #[inline(never)]
    fn note_freed_beside(&mut self, freed: Piece) -> bool {
        let home = Self::home(freed.word);
        self.note_freed_at(home, freed.mask);
        self.all_at(home) != !0
    }

    /// Notes freed frames of the word in this place.
    pub(crate) fn note_freed_at(&mut self, place: usize, mask: u64) {
        let at = &mut self.places[place];
        at.check_without(mask);
        at.mask |= mask;
        // Frames that are about to be handed out have not been, so nobody can free them.
        let slots = self.slots.iter().filter(|slot| slot.place == place);
        slots.for_each(|slot| slot.piece().check_without(mask));
    }

    /// Whether [`note_freed`](Self::note_freed) notes frames of this word.
    pub(crate) fn notes(&self, word: u64) -> bool {
        let recent = self.slots[self.recent.index()].base;
        self.places[Self::home(word)].word == word || recent == Piece { word, mask: 0 }.base()
    }

    /// Whether all of a word is here.
    pub(crate) fn is_whole(&self, word: u64) -> bool {
        let place = self.places.iter().position(|place| place.word == word);
        place.is_some_and(|place| self.all_at(place) == !0)
    }

    /// What there is of the word in a place: freed frames, and those that are handed out next.
    fn all_at(&self, place: usize) -> u64 {
        let slots = self.slots.iter().filter(|slot| slot.place == place);
        slots.fold(self.places[place].mask, |all, slot| all | slot.piece().mask)
    }

    /// The place of a word, its home, which it has from here on if it had none: what was displaced
    /// then is the caller's to give back.
    #[inline]
    pub(crate) fn place(&mut self, word: u64) -> (usize, Piece) {
        let home = Self::home(word);
        let at = self.places[home];
        if at.word == word {
            return (home, Piece::NONE);
        }
        let is_slot = self.slot_places & 1 << home != 0;
        if at.mask == 0 && !is_slot && self.find_away(word).is_none() {
            // Mostly its home is nobody's.
            self.forget(home);
            self.places[home] = Piece { word, mask: 0 };
            return (home, Piece::NONE);
        }
        self.place_anew(word)
    }

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

    /// Lets the words in two places change them: who comes next to the word that comes home finds it
    /// at once.
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

    /// The place of a word that has one and is not at home.
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

    /// Which place a word without one gets: its home, or if something is there an empty one, or if
    /// there is none its home after all; never one that frames are handed out from.
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

    /// Takes all that there is of the word in a place, which is no word's from here on.
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

    /// Forgets whose word is in a place.
    #[inline]
    fn forget(&mut self, place: usize) {
        let others = !(1 << place);
        self.away &= others;
        for own in &mut self.own {
            *own &= others;
        }
    }

    /// Takes what is left of the word that frames are handed out from.
    pub(crate) fn empty_slot(&mut self, mobility: Mobility) -> Piece {
        match self.slots[mobility.index()].place {
            NOWHERE => Piece::NONE,
            place => self.empty(place),
        }
    }

    /// Whether there is any frame of the word in a place, as far as `inside` takes it.
    pub(crate) fn has(&self, place: usize, inside: impl Fn(u64) -> bool) -> bool {
        self.all_at(place) != 0 && inside(self.places[place].base())
    }
}

const _: () = assert!(Mobility::COUNT < PLACES && PLACES <= u16::BITS as usize);
