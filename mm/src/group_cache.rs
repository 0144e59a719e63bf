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

/// The number of entries. A cache holds frames of at most this many bitmap words. At most three of
/// them are words that frames are handed out from, one for each mobility.
///
/// The preferred entry of a word is the entry with the word's number modulo this constant, so that
/// a lookup costs one comparison. A word is in another entry if a second word with the same
/// preferred entry was freed later.
pub(crate) const ENTRIES: usize = 8;
/// The entry of no word, which is always empty.
const NO_ENTRY: usize = ENTRIES;

/// A set of frames of one bitmap word.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupMask {
    /// The number of the word: the number of its first frame divided by 64.
    pub(crate) word: u64,
    /// A bit for each of its frames; 1 = in the set.
    pub(crate) mask: u64,
}

impl GroupMask {
    /// The empty set, of no bitmap word.
    pub(crate) const NONE: Self = Self {
        word: u64::MAX,
        mask: 0,
    };

    /// Returns the set that has only `frame`.
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
    entry: usize,
}

/// The number of no frame, and not of the first frame of a word either.
const NO_FRAME: u64 = u64::MAX;

impl Slot {
    const NONE: Self = Self {
        latest: NO_FRAME,
        mask: 0,
        base: NO_FRAME,
        entry: NO_ENTRY,
    };

    /// Returns all frames of the slot.
    fn frames(self) -> GroupMask {
        let latest = if self.latest == NO_FRAME {
            0
        } else {
            GroupMask::of(Frame::new(self.latest)).mask
        };
        GroupMask {
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
pub(crate) struct GroupCache {
    /// For each mobility, the word that frames are handed out from.
    slots: [Slot; Mobility::COUNT],
    /// The entries of these words, a bit for each.
    slot_entries: u16,
    /// The mobility of the last allocation, which is likely to be that of the next free.
    recent: Mobility,
    /// The entries: in each the freed frames of one word.
    entries: [GroupMask; ENTRIES + 1],
    /// For each mobility, the entries of words that frames were handed out from, a bit for each.
    /// Frames freed to these words are handed out again, however few they are.
    own: [u16; Mobility::COUNT],
    /// The entries whose word is not in its preferred entry, a bit for each.
    displaced: u16,
}

impl GroupCache {
    /// Returns a cache without frames.
    pub(crate) const fn new() -> Self {
        Self {
            slots: [Slot::NONE; Mobility::COUNT],
            slot_entries: 1 << NO_ENTRY,
            recent: Mobility::Movable,
            entries: [GroupMask::NONE; ENTRIES + 1],
            own: [0; Mobility::COUNT],
            displaced: 0,
        }
    }

    /// Takes a frame out of the bitmap word that this cache hands out frames of `mobility` from:
    /// one that is ready to be handed out, or else one that was freed to the word. Returns `None`
    /// if the cache has no frame of that word.
    #[inline]
    pub(crate) fn pop(&mut self, mobility: Mobility) -> Option<Frame> {
        self.pop_left(mobility).or_else(|| self.pop_freed(mobility))
    }

    /// Takes a frame of `mobility` that is ready to be handed out: the one freed last, or else the
    /// lowest. Returns `None` if none is ready. Frames that were freed to the entry of the same
    /// word do not count; [`pop_freed`](Self::pop_freed) makes them ready.
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

    /// Moves the frames that were freed to the word of `mobility` into the slot of that mobility,
    /// and takes the lowest one. The slot is the set of frames that are handed out next. Returns
    /// `None` if no such frame was freed. Out of line, or the common case would look at them as
    /// well.
    #[cold]
    #[inline(never)]
    pub(crate) fn pop_freed(&mut self, mobility: Mobility) -> Option<Frame> {
        let slot = &mut self.slots[mobility.index()];
        let freed = &mut self.entries[slot.entry];
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
        slot.is_empty() && self.entries[slot.entry].mask == 0
    }

    /// Returns an upper bound on the number of frames that this cache holds of the pageblock number
    /// `block`. Counts every entry with a word of the pageblock as 64 frames.
    #[inline]
    pub(crate) fn most_of_block(&self, block: u64) -> u64 {
        let inside = |word: u64| u64::from(word / WORDS as u64 == block);
        let entries = self.entries[..ENTRIES].iter();
        let words = entries.map(|group| inside(group.word)).sum::<u64>();
        // A word that frames are handed out from has an entry too.
        words * u64::from(WORD_FRAMES)
    }

    /// Returns all frames that this cache holds, in sets of frames of one bitmap word. Each frame
    /// is in one set, but the frames of a word may be in several sets. Some sets are empty.
    #[inline]
    pub(crate) fn masks(&self) -> impl Iterator<Item = GroupMask> {
        let slots = self.slots.iter().map(|slot| slot.frames());
        slots.chain(self.entries[..ENTRIES].iter().copied())
    }

    /// Returns the frames that were freed to the word in `entry`, an index below [`ENTRIES`]. The
    /// set may be empty. Frames of the word that are handed out next, those of a slot, are not
    /// included.
    #[inline]
    pub(crate) fn freed(&self, entry: usize) -> GroupMask {
        self.entries[entry]
    }

    /// Takes the lowest freed frame out of `entry`, an index below [`ENTRIES`]. Returns `None` if
    /// it has none.
    pub(crate) fn pop_at(&mut self, entry: usize) -> Option<Frame> {
        self.entries[entry].pop()
    }

    /// Returns whether this cache handed out frames of `mobility` from the word in `entry`, so that
    /// frames freed to it are handed out again.
    #[inline]
    pub(crate) fn is_own(&self, entry: usize, mobility: Mobility) -> bool {
        self.own[mobility.index()] & 1 << entry != 0
    }

    /// Notes that this cache hands out frames freed to `entry` again, for requests of `mobility`.
    /// `entry` is below [`ENTRIES`]. Notes for other mobilities stay.
    #[inline]
    pub(crate) fn note_own(&mut self, entry: usize, mobility: Mobility) {
        self.own[mobility.index()] |= 1 << entry;
    }

    /// Makes the cache hand out frames of `mobility` from the word in `entry`: the frames in
    /// `mask`, and then those freed to the entry. The cache must have no frame left of the word
    /// that it handed out frames of `mobility` from before; a debug build panics otherwise.
    #[inline]
    pub(crate) fn hand_out_from(&mut self, entry: usize, mask: u64, mobility: Mobility) {
        debug_assert!(self.is_used_up(mobility), "refilled while it holds frames");
        self.slots[mobility.index()] = Slot {
            latest: NO_FRAME,
            mask,
            base: self.entries[entry].base(),
            entry,
        };
        self.note_slots();
        self.note_own(entry, mobility);
    }

    /// Updates the set of entries of the words that frames are handed out from.
    #[inline]
    fn note_slots(&mut self) {
        let slots = self.slots.iter();
        self.slot_entries = slots.fold(0, |entries, slot| entries | 1 << slot.entry);
    }

    /// Returns the index of the entry in which a word is looked up first.
    #[inline]
    fn preferred(word: u64) -> usize {
        crate::frame::index(word) % ENTRIES
    }

    /// Adds a freed frame to this cache, if its bitmap word is the one that frames were last handed
    /// out from or is in its preferred entry. Returns `true` if nothing is left to do. Returns
    /// `false` if the caller must do more: the word is neither, and the frame was not added, or all
    /// frames of the word may be in the cache now. Panics if the cache has the frame already.
    #[inline]
    pub(crate) fn note_freed(&mut self, frame: Frame) -> bool {
        let freed = GroupMask::of(frame);
        // The location of the store must not depend on the frame: the next allocation would wait
        // until it is computed.
        let slot = &mut self.slots[self.recent.index()];
        if slot.base == freed.base() {
            if slot.mask & freed.mask != 0 || slot.latest == frame.number() {
                freed_twice(frame);
            }
            let at = self.entries[slot.entry];
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
        let preferred = Self::preferred(freed.word);
        let at = &mut self.entries[preferred];
        if at.word != freed.word {
            return false;
        }
        if self.slot_entries & 1 << preferred != 0 {
            return self.note_freed_beside(freed);
        }
        at.check_without(freed.mask);
        at.mask |= freed.mask;
        at.mask != !0
    }

    /// Adds freed frames to a word in its preferred entry, if a slot may have frames of it too:
    /// frames freed before frames were handed out for another mobility. Returns `false` if all
    /// frames of the word are in the cache now.
    #[inline(never)]
    fn note_freed_beside(&mut self, freed: GroupMask) -> bool {
        let preferred = Self::preferred(freed.word);
        self.note_freed_at(preferred, freed.mask);
        self.all_at(preferred) != !0
    }

    /// Adds the freed frames in `mask`, a bit for each frame of the word, to `entry`, which must be
    /// the word's. Panics if the cache has one of them already.
    pub(crate) fn note_freed_at(&mut self, entry: usize, mask: u64) {
        let at = &mut self.entries[entry];
        at.check_without(mask);
        at.mask |= mask;
        // The frames in slots are not allocated, so no caller can free them.
        let slots = self.slots.iter().filter(|slot| slot.entry == entry);
        slots.for_each(|slot| slot.frames().check_without(mask));
    }

    /// Returns whether the cache looks for freed frames of bitmap word `word` without a search, so
    /// that [`note_freed`](Self::note_freed) adds them.
    pub(crate) fn notes(&self, word: u64) -> bool {
        let recent = self.slots[self.recent.index()].base;
        self.entries[Self::preferred(word)].word == word
            || recent == GroupMask { word, mask: 0 }.base()
    }

    /// Returns whether this cache holds all 64 frames of bitmap word `word`.
    pub(crate) fn is_whole(&self, word: u64) -> bool {
        let entry = self.entries.iter().position(|entry| entry.word == word);
        entry.is_some_and(|entry| self.all_at(entry) == !0)
    }

    /// Returns the frames of the word in an entry: the freed ones, and those that are handed out
    /// next.
    fn all_at(&self, entry: usize) -> u64 {
        let slots = self.slots.iter().filter(|slot| slot.entry == entry);
        slots.fold(self.entries[entry].mask, |all, slot| {
            all | slot.frames().mask
        })
    }

    /// Returns the index of the entry of bitmap word `word`, which is its preferred one. A word
    /// without an entry gets one. The second result has the frames of the word that lost its entry,
    /// often none: the caller must return them to the bitmap.
    #[inline]
    pub(crate) fn entry(&mut self, word: u64) -> (usize, GroupMask) {
        let preferred = Self::preferred(word);
        let at = self.entries[preferred];
        if at.word == word {
            return (preferred, GroupMask::NONE);
        }
        let is_slot = self.slot_entries & 1 << preferred != 0;
        if at.mask == 0 && !is_slot && self.find_displaced(word).is_none() {
            // Mostly its preferred entry is unused.
            self.forget(preferred);
            self.entries[preferred] = GroupMask { word, mask: 0 };
            return (preferred, GroupMask::NONE);
        }
        self.assign_entry(word)
    }

    /// Finds or makes an entry for a word that is not in its preferred entry, and exchanges it with
    /// that in its preferred entry.
    fn assign_entry(&mut self, word: u64) -> (usize, GroupMask) {
        let mut evicted = GroupMask::NONE;
        let entry = self.find_displaced(word).unwrap_or_else(|| {
            let entry = self.vacant(word);
            self.forget(entry);
            let new = GroupMask { word, mask: 0 };
            evicted = core::mem::replace(&mut self.entries[entry], new);
            entry
        });
        let preferred = Self::preferred(word);
        if entry != preferred {
            self.exchange(entry, preferred);
        }
        (preferred, evicted)
    }

    /// Exchanges the words of two entries. The next lookup of the word that moves to `preferred`
    /// finds it at once.
    fn exchange(&mut self, entry: usize, preferred: usize) {
        self.entries.swap(entry, preferred);
        for own in &mut self.own {
            let differ = (*own >> entry ^ *own >> preferred) & 1;
            *own ^= differ << entry | differ << preferred;
        }
        for slot in &mut self.slots {
            if slot.entry == preferred {
                slot.entry = entry;
            } else if slot.entry == entry {
                slot.entry = preferred;
            }
        }
        self.note_slots();
        for at in [entry, preferred] {
            let word = self.entries[at].word;
            let is_displaced = word != GroupMask::NONE.word && Self::preferred(word) != at;
            self.displaced = self.displaced & !(1 << at) | u16::from(is_displaced) << at;
        }
    }

    /// Returns the entry of a word that has one and is not in its preferred entry, or `None`.
    #[inline]
    fn find_displaced(&self, word: u64) -> Option<usize> {
        let mut displaced = self.displaced;
        while displaced != 0 {
            let entry = displaced.trailing_zeros() as usize;
            if self.entries[entry].word == word {
                return Some(entry);
            }
            displaced &= displaced - 1;
        }
        None
    }

    /// Returns the entry for a word without one: its preferred one if that is empty, else an
    /// empty one, else its preferred one, else any. Never an entry that frames are handed out from.
    fn vacant(&self, word: u64) -> usize {
        let preferred = Self::preferred(word);
        let may = !self.slot_entries;
        if self.entries[preferred].mask == 0 && may & 1 << preferred != 0 {
            return preferred;
        }
        let mut empty = 0;
        for (entry, group) in self.entries[..ENTRIES].iter().enumerate() {
            empty |= u16::from(group.mask == 0) << entry;
        }
        let choice = if empty & may != 0 {
            empty & may
        } else if may & 1 << preferred != 0 {
            1 << preferred
        } else {
            may
        };
        choice.trailing_zeros() as usize
    }

    /// Takes all frames of the bitmap word in `entry` out of the cache, frees the entry and returns
    /// the frames. The set may be empty.
    pub(crate) fn empty(&mut self, entry: usize) -> GroupMask {
        self.forget(entry);
        let mut group = core::mem::replace(&mut self.entries[entry], GroupMask::NONE);
        for slot in &mut self.slots {
            if slot.entry == entry {
                let left = slot.frames().mask;
                group.check_without(left);
                group.mask |= left;
                *slot = Slot::NONE;
            }
        }
        self.note_slots();
        group
    }

    /// Clears the marks of an entry.
    #[inline]
    fn forget(&mut self, entry: usize) {
        let others = !(1 << entry);
        self.displaced &= others;
        for own in &mut self.own {
            *own &= others;
        }
    }

    /// Takes all frames of the bitmap word that frames of `mobility` are handed out from out of the
    /// cache, frees its entry and returns the frames. Returns the empty set if there is no such
    /// word.
    pub(crate) fn empty_slot(&mut self, mobility: Mobility) -> GroupMask {
        match self.slots[mobility.index()].entry {
            NO_ENTRY => GroupMask::NONE,
            entry => self.empty(entry),
        }
    }

    /// Returns whether the cache has frames of the word in `entry`, and `inside` accepts the number
    /// of that word's first frame.
    pub(crate) fn has(&self, entry: usize, inside: impl Fn(u64) -> bool) -> bool {
        self.all_at(entry) != 0 && inside(self.entries[entry].base())
    }
}

const _: () = assert!(Mobility::COUNT < ENTRIES && ENTRIES <= u16::BITS as usize);
