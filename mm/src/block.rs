//! A pageblock: its state word and its bits, changed together.

use crate::{
    Mobility, Order,
    bitmap::{Line, Taken, WORD_FRAMES, WORDS},
    state::{Admission, AtomicState, BLOCK_FRAMES, Change, State},
};

/// Who hears of each change of a state word.
pub(crate) trait Watch {
    fn changed(&self, change: Change);
}

/// One pageblock.
#[derive(Debug)]
pub(crate) struct Block<'a, W> {
    pub(crate) state: &'a AtomicState,
    pub(crate) bits: &'a Line,
    /// A bit for each frame that the host may hold; exact while the state says `fine`.
    pub(crate) touched: &'a Line,
    pub(crate) watch: W,
}

impl<W: Watch> Block<'_, W> {
    /// Takes frames of one word: as many as are free there, up to `most`.
    pub(crate) fn take_word(&self, most: u32, admit: Admission) -> Option<Taken> {
        // A free block's line need not be looked at before it is taken.
        let (word, free) = match self.state.load() {
            state if state.is_free() => (0, WORD_FRAMES),
            state if state.count() >= BLOCK_FRAMES => return None,
            _ => self.bits.best_word(),
        };
        if free == 0 {
            return None;
        }
        let (reserved, change) = self.state.reserve(1, free.min(most), admit)?;
        self.watch.changed(change);
        let taken = self.bits.take_some(word, reserved);
        let rest = reserved - taken.map_or(0, |taken| taken.mask.count_ones());
        if rest != 0 {
            self.watch.changed(self.state.release(rest));
        }
        let taken = taken?;
        self.touch(taken);
        Some(taken)
    }

    /// Takes an aligned run below the order of a block: its first frame's index.
    pub(crate) fn take_run(&self, order: Order, admit: Admission) -> Option<usize> {
        let frames = 1 << order.get();
        if !self.state.load().is_free() && !self.bits.has_run(order) {
            return None;
        }
        let (_, change) = self.state.reserve(frames, frames, admit)?;
        self.watch.changed(change);
        let Some(first) = self.bits.take_run(order) else {
            self.watch.changed(self.state.release(frames));
            return None;
        };
        if self.state.load().is_fine() {
            for taken in words(first, frames) {
                self.touched.mark(taken.word, taken.mask);
            }
        }
        Some(first)
    }

    /// Takes exactly these frames of one word.
    pub(crate) fn take_exactly(&self, taken: Taken, admit: Admission) -> bool {
        let frames = taken.mask.count_ones();
        let Some((_, change)) = self.state.reserve(frames, frames, admit) else {
            return false;
        };
        self.watch.changed(change);
        if !self.bits.take_exactly(taken.word, taken.mask) {
            self.watch.changed(self.state.release(frames));
            return false;
        }
        self.touch(taken);
        true
    }

    /// Notes that frames just taken will be used. Looked up after they were taken: should the
    /// reporter have made the marks exact before, whose clearing of these frames' marks is then
    /// over as well, for it held them.
    fn touch(&self, taken: Taken) {
        if self.state.load().is_fine() {
            self.touched.mark(taken.word, taken.mask);
        }
    }

    /// Gives frames of one word back; what is in use in the word after.
    pub(crate) fn give_word(&self, taken: Taken) -> u64 {
        let after = self.bits.give(taken.word, taken.mask);
        self.watch
            .changed(self.state.release(taken.mask.count_ones()));
        after
    }

    /// Gives a run back.
    pub(crate) fn give_run(&self, first: usize, order: Order) {
        self.bits.give_run(first, order);
        self.watch.changed(self.state.release(1 << order.get()));
    }

    /// Takes the block whole, if it is free.
    pub(crate) fn take_whole(&self, mobility: Mobility) -> bool {
        let Some(change) = self.state.take_whole(mobility) else {
            return false;
        };
        self.watch.changed(change);
        if change.old.is_fine() {
            self.forget_touched();
            self.state.set_fine(false);
        }
        true
    }

    /// Gives the block back that was taken whole.
    pub(crate) fn give_whole(&self) {
        self.watch.changed(self.state.free_whole());
    }

    /// Takes the block out, if it is free and wanted.
    pub(crate) fn isolate(&self, wanted: impl Fn(State) -> bool) -> bool {
        let Some(change) = self.state.isolate(wanted) else {
            return false;
        };
        self.watch.changed(change);
        true
    }

    /// Puts it back.
    pub(crate) fn put_back(&self, reported: bool) {
        if reported && self.state.load().is_fine() {
            self.forget_touched();
        }
        self.watch.changed(self.state.put_back(reported));
    }

    /// Takes frames out of a block that is in use, to report them, and sees to it that its marks
    /// are exact. Only one caller at a time may do so: the reporter.
    pub(crate) fn borrow(&self, frames: u32, take: impl FnOnce(&Line) -> bool) -> bool {
        let Some(change) = self.state.borrow(frames) else {
            return false;
        };
        self.watch.changed(change);
        if !take(self.bits) {
            self.watch.changed(self.state.release(frames));
            return false;
        }
        // While the count includes these frames the block is not free, so nobody isolates it and
        // puts it back untouched between these two steps; and only the reporter makes marks exact.
        if !self.state.load().is_fine() {
            for word in 0..WORDS {
                self.touched.mark(word, !0);
            }
            self.state.set_fine(true);
        }
        true
    }

    /// Gives borrowed frames of one word back: as reported, or as they were.
    pub(crate) fn give_borrowed(&self, taken: Taken, reported: bool) {
        if reported {
            self.touched.unmark(taken.word, taken.mask);
        }
        self.give_word(taken);
    }

    fn forget_touched(&self) {
        for word in 0..WORDS {
            self.touched.unmark(word, !0);
        }
    }
}

/// The words that `frames` frames from this index in a block span.
pub(crate) fn words(first: usize, frames: u32) -> impl Iterator<Item = Taken> {
    let end = first + frames as usize;
    let size = WORD_FRAMES as usize;
    (first / size..end.div_ceil(size)).map(move |word| {
        let low = first.saturating_sub(word * size);
        let high = (end - word * size).min(size);
        let below = |bits: usize| if bits == size { !0 } else { (1u64 << bits) - 1 };
        Taken {
            word,
            mask: below(high) & !below(low),
        }
    })
}
