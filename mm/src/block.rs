//! A pageblock: its state word, its bits and its reach, changed together.

use crate::{
    Mobility, Order,
    bitmap::{Line, Taken, WORD_FRAMES, WORDS},
    reach::{AtomicReach, Reach},
    state::{Admission, AtomicState, BLOCK_FRAMES, Change, Refused, State},
};

/// What stands above a block.
pub(crate) trait Watch {
    /// Called before a free block is used; false: it cannot be.
    fn enter(&self) -> bool;
    /// Undoes `enter` where the block was not used after all. Where it was, the change that makes
    /// it free again does so.
    fn leave(&self);
    /// Hears of each change of the state word.
    fn changed(&self, change: Change);
    /// Hears that the largest runs are thought to be of another order.
    fn reaches(&self, reach: Reach);
}

/// What is in use of a block of which frames were given back.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Left {
    /// In their word.
    pub(crate) word: u64,
    /// How many frames.
    pub(crate) frames: u32,
}

/// One pageblock.
#[derive(Debug)]
pub(crate) struct Block<'a, W> {
    pub(crate) state: &'a AtomicState,
    pub(crate) bits: &'a Line,
    pub(crate) reach: &'a AtomicReach,
    /// A bit for each frame that the host may hold; exact while the state says `fine`, which it
    /// never does where there are none.
    pub(crate) touched: Option<&'a Line>,
    pub(crate) watch: W,
}

impl<W: Watch> Block<'_, W> {
    /// Raises the count: the frames are the caller's to take from the bits.
    fn reserve(&self, least: u32, most: u32, admit: Admission) -> Option<u32> {
        let mut entered = false;
        // Bounded by the progress of others: it goes round when one has freed the block meanwhile.
        loop {
            if !entered && self.state.load().is_free() {
                if !self.watch.enter() {
                    return None;
                }
                entered = true;
            }
            match self.state.reserve((least, most), admit, entered) {
                Ok((frames, change)) => {
                    if entered && !change.old.is_free() {
                        self.watch.leave();
                    }
                    self.watch.changed(change);
                    return Some(frames);
                }
                Err(Refused::Free) => {}
                Err(Refused::Unsuited) => {
                    if entered {
                        self.watch.leave();
                    }
                    return None;
                }
            }
        }
    }

    /// Uses the block as a whole by this step, which refuses unless it is free.
    pub(crate) fn use_whole(
        &self,
        step: impl Fn(&AtomicState) -> Option<Change>,
    ) -> Option<Change> {
        if !self.state.load().is_free() || !self.watch.enter() {
            return None;
        }
        let change = step(self.state);
        match change {
            Some(change) => self.watch.changed(change),
            None => self.watch.leave(),
        }
        change
    }

    /// A front takes its frames elsewhere from here on.
    pub(crate) fn let_go(&self) {
        self.watch.changed(self.state.let_go());
    }

    pub(crate) fn release(&self, frames: u32) -> Change {
        let change = self.state.release(frames);
        self.watch.changed(change);
        change
    }

    /// Says that runs of so many orders may be free.
    fn raise(&self, to: Reach) {
        if self.reach.load() < to && self.reach.raise(to) < to {
            self.watch.reaches(to);
        }
    }

    /// Says that the block has no larger runs than these, unless its bits show some.
    pub(crate) fn lower(&self, to: Reach) {
        if self.reach.load() > to {
            self.reach.lower(to);
            self.watch.reaches(to);
            self.raise(self.bits.reach().max(to));
        }
    }

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
        let reserved = self.reserve(1, free.min(most), admit)?;
        let taken = self.bits.take_some(word, reserved);
        let rest = reserved - taken.map_or(0, |taken| taken.mask.count_ones());
        if rest != 0 {
            self.release(rest);
        }
        let taken = taken?;
        self.touch(taken);
        // The line is at hand. Who comes next should not have to find out.
        self.lower(self.bits.reach());
        Some(taken)
    }

    /// Takes an aligned run below the order of a block: its first frame's index.
    pub(crate) fn take_run(&self, order: Order, admit: Admission) -> Option<usize> {
        let frames = 1 << order.get();
        if !self.state.load().is_free() && !self.bits.has_run(order) {
            self.lower(Reach::of(order.get().saturating_sub(1)));
            return None;
        }
        self.reserve(frames, frames, admit)?;
        let Some(first) = self.bits.take_run(order) else {
            self.release(frames);
            // It may have held words for a moment, which nobody could see then.
            self.raise(Reach::ALL);
            return None;
        };
        if self.state.load().is_fine() {
            for taken in words(first, frames) {
                self.mark(taken);
            }
        }
        // As in `take_word`.
        self.lower(self.bits.reach());
        Some(first)
    }

    /// Takes exactly these frames of one word.
    pub(crate) fn take_exactly(&self, taken: Taken, admit: Admission) -> bool {
        let frames = taken.mask.count_ones();
        if self.reserve(frames, frames, admit).is_none() {
            return false;
        }
        if !self.bits.take_exactly(taken.word, taken.mask) {
            self.release(frames);
            return false;
        }
        self.touch(taken);
        true
    }

    /// Notes that frames just taken will be used. Looked up after they were taken: should the
    /// reporter have made the marks exact before, whose clearing of these frames' marks is then
    /// over as well, for it held them.
    pub(crate) fn touch(&self, taken: Taken) {
        if self.state.load().is_fine() {
            self.mark(taken);
        }
    }

    fn mark(&self, taken: Taken) {
        if let Some(touched) = self.touched {
            touched.mark(taken.word, taken.mask);
        }
    }

    /// Gives frames of one word back; what is in use after.
    pub(crate) fn give_word(&self, taken: Taken) -> Left {
        let word = self.bits.give(taken.word, taken.mask);
        let state = self.given(taken.mask.count_ones(), taken.word, word);
        Left {
            word,
            frames: state.used(),
        }
    }

    /// Gives a run back.
    pub(crate) fn give_run(&self, first: usize, order: Order) {
        let (word, after) = self.bits.give_run(first, order);
        self.given(1 << order.get(), word, after);
    }

    /// Frames were given back, the last of them in this word, in which these are used now.
    #[inline]
    fn given(&self, frames: u32, word: usize, after: u64) -> State {
        let change = self.state.release(frames);
        if change.old.used() == BLOCK_FRAMES {
            // It had none before: the best moment to know exactly what it has.
            let reach = self.bits.reach_of(word, after);
            self.lower(reach);
            self.raise(reach);
        } else if self.reach.load() != Reach::ALL {
            self.raise(self.bits.reach_of(word, after));
        }
        self.watch.changed(change);
        change.new
    }

    /// Takes the block whole, if it is free.
    pub(crate) fn take_whole(&self, mobility: Mobility) -> bool {
        let Some(change) = self.use_whole(|state| state.take_whole(mobility)) else {
            return false;
        };
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

    /// The block that was taken whole is given back in parts from here on.
    pub(crate) fn split(&self) {
        self.bits.fill();
        self.state.split_whole();
    }

    /// Forgets what the host holds of single frames of a block that the caller has.
    pub(crate) fn coarsen(&self) {
        if self.state.load().is_fine() {
            self.forget_touched();
            self.state.set_fine(false);
        }
    }

    /// Takes the block out, if it is free and wanted.
    pub(crate) fn isolate(&self, wanted: impl Fn(State) -> bool) -> bool {
        self.use_whole(|state| state.isolate(&wanted)).is_some()
    }

    /// Puts it back.
    pub(crate) fn put_back(&self, reported: bool) {
        if reported && self.state.load().is_fine() {
            self.forget_touched();
        }
        self.watch.changed(self.state.put_back(reported));
    }

    /// Takes out frames for which there is no memory, before anybody uses the block.
    pub(crate) fn set_missing(&self, frames: u32) -> Change {
        if self.state.load().is_free() {
            self.watch.enter();
        }
        let change = self.state.set_missing(frames);
        self.watch.changed(change);
        change
    }

    /// Takes the memory of the block away, if it is free.
    pub(crate) fn set_offline(&self) -> bool {
        self.use_whole(AtomicState::set_offline).is_some()
    }

    /// Gives it its memory back, if it was taken away.
    pub(crate) fn set_online(&self, dropped: bool) -> bool {
        if dropped && self.state.load().is_fine() {
            self.forget_touched();
        }
        let change = self.state.set_online(dropped);
        if let Some(change) = change {
            self.watch.changed(change);
        }
        change.is_some()
    }

    /// Gives it its memory back, if it was taken away, all of it in use. Only one caller at a time.
    pub(crate) fn set_admitted(&self) -> bool {
        if !self.state.load().is_offline() {
            return false;
        }
        // Nobody looks at the bits of a block that is offline.
        self.coarsen();
        self.bits.fill();
        let change = self.state.set_admitted();
        if let Some(change) = change {
            self.watch.changed(change);
        }
        change.is_some()
    }

    /// Takes frames out of a block that is in use, to report them, and sees to it that its marks
    /// are exact. Only one caller at a time may do so: the reporter.
    pub(crate) fn borrow(&self, frames: u32, take: impl FnOnce(&Line) -> bool) -> bool {
        let Some(touched) = self.touched else {
            return false;
        };
        let Some(change) = self.state.borrow(frames) else {
            return false;
        };
        self.watch.changed(change);
        if !take(self.bits) {
            self.release(frames);
            self.raise(Reach::ALL);
            return false;
        }
        // While the count includes these frames the block is not free, so nobody isolates it and
        // puts it back untouched between these two steps; and only the reporter makes marks exact.
        if !self.state.load().is_fine() {
            for word in 0..WORDS {
                touched.mark(word, !0);
            }
            self.state.set_fine(true);
        }
        true
    }

    /// Gives borrowed frames of one word back: as reported, or as they were.
    pub(crate) fn give_borrowed(&self, taken: Taken, reported: bool) {
        if reported && let Some(touched) = self.touched {
            touched.unmark(taken.word, taken.mask);
        }
        self.give_word(taken);
    }

    fn forget_touched(&self) {
        for word in 0..WORDS {
            if let Some(touched) = self.touched {
                touched.unmark(word, !0);
            }
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
