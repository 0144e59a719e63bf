//! A pageblock with all its metadata: [`Block`] changes the state word, the bitmap and the run
//! bound together, in the right order.
//!
//! The *run bound* is an upper bound of the orders of the free runs in the bitmap. A search uses it
//! to skip blocks.

use crate::{
    Mobility, Order,
    bitmap::{Line, Taken, WORD_FRAMES, WORDS},
    run_bound::{AtomicRunBound, RunBound},
    state::{Admission, AtomicState, BLOCK_FRAMES, Change, Refused, State},
};

/// Receives the changes of a block, to update the summaries and search hints above the block.
pub(crate) trait Watch {
    /// Called before a free block is used: the block's GiB counts it as in use from here on.
    /// Returns `false` if the GiB is allocated whole, so the block cannot be used.
    fn enter(&self) -> bool;
    /// Undoes [`enter`](Self::enter) if the block was not used after all. If it was used, the
    /// change that frees the block again does this.
    fn leave(&self);
    /// Called after each change of the state word.
    fn changed(&self, change: Change);
    /// Called after the upper bound of the orders of free runs has changed to `run_bound`.
    fn run_bound_changed(&self, run_bound: RunBound);
}

/// The frames still in use after others were freed.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Left {
    /// The frames in use of the same `u64` of the bitmap, one bit for each.
    pub(crate) word: u64,
    /// Number of frames in use of the pageblock.
    pub(crate) frames: u32,
}

/// The metadata of one pageblock.
#[derive(Debug)]
pub(crate) struct Block<'a, W> {
    /// The state word.
    pub(crate) state: &'a AtomicState,
    /// The allocation bitmap.
    pub(crate) bits: &'a Line,
    /// The upper bound of the orders of free runs.
    pub(crate) run_bound: &'a AtomicRunBound,
    /// One bit for each frame that the host may hold memory for. It is exact while the state has
    /// the flag `exact_marks`. `None` if the configuration has no frame marks, and then the state
    /// never has that flag.
    pub(crate) touched: Option<&'a Line>,
    /// Receives the changes.
    pub(crate) watch: W,
}

impl<W: Watch> Block<'_, W> {
    /// Raises the count by `least` to `most` frames, which the caller may then take from the
    /// bitmap. Returns their number. Returns `None` if fewer than `least` frames are free, `admit`
    /// excludes the block, or its GiB is allocated as a whole.
    fn reserve(&self, least: u32, most: u32, admit: Admission) -> Option<u32> {
        let mut entered = false;
        // Bounded by the progress of others: a retry means that another CPU freed the block since
        // it was read.
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

    /// Changes the state of a free block with `step`, which must refuse a block that is not free.
    /// Returns the states before and after. Returns `None` if the block is in use, its GiB is
    /// allocated as a whole, or `step` refuses.
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

    /// Notes that a per-CPU cache no longer allocates from this block, so that other caches may.
    pub(crate) fn release_block(&self) {
        self.watch.changed(self.state.release_block());
    }

    /// Lowers the block's count of frames in use by `frames`. Their bits are clear already, or were
    /// never set. Returns the states before and after.
    ///
    /// # Panics
    /// If fewer frames are in use.
    pub(crate) fn release(&self, frames: u32) -> Change {
        let change = self.state.release(frames);
        self.watch.changed(change);
        change
    }

    /// Raises the bound of the orders of free runs to at least `to`.
    fn raise(&self, to: RunBound) {
        if self.run_bound.load() < to && self.run_bound.raise(to) < to {
            self.watch.run_bound_changed(to);
        }
    }

    /// Lowers the upper bound of the orders of free runs to `to`, unless the bitmap has a larger
    /// free run.
    pub(crate) fn lower(&self, to: RunBound) {
        if self.run_bound.load() > to {
            self.run_bound.lower(to);
            self.watch.run_bound_changed(to);
            self.raise(self.bits.run_bound().max(to));
        }
    }

    /// Takes at least one and up to `most` free frames of one `u64` of the bitmap, and marks them
    /// as touched. Returns the frames taken. Returns `None` if no frame is free, `admit` excludes
    /// the block, its GiB is allocated as a whole, or no free frame was found in a bounded number
    /// of attempts.
    pub(crate) fn take_word(&self, most: u32, admit: Admission) -> Option<Taken> {
        // If the block is free, do not read its bitmap before it is reserved.
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
        // The bitmap is in the cache now. This spares the next search a look at it.
        self.lower(self.bits.run_bound());
        Some(taken)
    }

    /// Allocates `1 << order` adjacent, aligned frames of this block, for an order below 9, and
    /// marks them as touched. Returns the index of the first frame in the block. Returns `None` if
    /// no such free frames were found, `admit` excludes the block, or its GiB is allocated as a
    /// whole. Lowers the run bound to what the bitmap shows.
    pub(crate) fn take_run(&self, order: Order, admit: Admission) -> Option<usize> {
        let frames = 1 << order.get();
        if !self.state.load().is_free() && !self.bits.has_run(order) {
            self.lower(RunBound::of(order.get().saturating_sub(1)));
            return None;
        }
        self.reserve(frames, frames, admit)?;
        let Some(first) = self.bits.take_run(order) else {
            self.release(frames);
            // `take_run` may have held parts of a run for a moment, so another CPU may have set the
            // bound too low.
            self.raise(RunBound::ALL);
            return None;
        };
        if self.state.load().has_exact_marks() {
            for taken in words(first, frames) {
                self.mark(taken);
            }
        }
        // The bitmap is in the cache now. This spares the next search a look at it.
        self.lower(self.bits.run_bound());
        Some(first)
    }

    /// Takes exactly the frames of `taken` and marks them as touched. Returns `true` if it took
    /// them. Returns `false` and takes nothing if one of them is in use, `admit` excludes the
    /// block, or its GiB is allocated as a whole.
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

    /// Marks frames that were just taken as touched: the host may hold memory for them. Does
    /// nothing unless the block has exact marks.
    ///
    /// The flag is read after the frames were taken. If the reporter made the marks exact before
    /// that, it held these frames then, so it no longer clears their marks.
    pub(crate) fn touch(&self, taken: Taken) {
        if self.state.load().has_exact_marks() {
            self.mark(taken);
        }
    }

    /// Sets the touched marks of these frames (the host may hold memory for them), if the
    /// configuration has such marks.
    fn mark(&self, taken: Taken) {
        if let Some(touched) = self.touched {
            touched.mark(taken.word, taken.mask);
        }
    }

    /// Frees the frames of `taken`. Returns the frames that are still in use.
    ///
    /// # Panics
    /// If one of the frames is not in use.
    pub(crate) fn give_word(&self, taken: Taken) -> Left {
        let word = self.bits.give(taken.word, taken.mask);
        let state = self.given(taken.mask.count_ones(), taken.word, word);
        Left {
            word,
            frames: state.used(),
        }
    }

    /// Frees the `1 << order` frames from index `first` in the block on, for an order below 9.
    /// Returns the frames that are still in use, with those of the last `u64` of the bitmap that
    /// the run spans.
    ///
    /// # Panics
    /// If one of the frames is not in use.
    pub(crate) fn give_run(&self, first: usize, order: Order) -> Left {
        let (index, word) = self.bits.give_run(first, order);
        let state = self.given(1 << order.get(), index, word);
        Left {
            word,
            frames: state.used(),
        }
    }

    /// Updates count and bound after `frames` were freed. The last of them are in the `u64` with
    /// index `word`, whose value is `after`. Returns the new state.
    #[inline]
    fn given(&self, frames: u32, word: usize, after: u64) -> State {
        let change = self.state.release(frames);
        if change.old.used() == BLOCK_FRAMES {
            // The block had no free frame, so the runs of this `u64` are all that it has.
            let run_bound = self.bits.run_bound_of(word, after);
            self.lower(run_bound);
            self.raise(run_bound);
        } else if self.run_bound.load() != RunBound::ALL {
            self.raise(self.bits.run_bound_of(word, after));
        }
        self.watch.changed(change);
        change.new
    }

    /// Allocates the whole block for `mobility`. Returns `false` if the block is not free or its
    /// GiB is allocated as a whole.
    pub(crate) fn take_whole(&self, mobility: Mobility) -> bool {
        let Some(change) = self.use_whole(|state| state.take_whole(mobility)) else {
            return false;
        };
        if change.old.has_exact_marks() {
            self.forget_touched();
            self.state.set_exact_marks(false);
        }
        true
    }

    /// Frees a block that was allocated as a whole.
    ///
    /// # Panics
    /// If the block is not allocated as a whole.
    pub(crate) fn give_whole(&self) {
        self.watch.changed(self.state.free_whole());
    }

    /// Turns a block that was allocated as a whole into 512 single frames in use, which may be
    /// freed in parts.
    ///
    /// # Panics
    /// If the block is not allocated as a whole.
    pub(crate) fn split(&self) {
        self.bits.fill();
        self.state.split_whole();
    }

    /// Drops the per-frame touched marks of a block that the caller owns. From here on the host may
    /// hold memory for any frame of it. Does nothing if the block has no such marks.
    pub(crate) fn drop_exact_marks(&self) {
        if self.state.load().has_exact_marks() {
            self.forget_touched();
            self.state.set_exact_marks(false);
        }
    }

    /// Isolates the block if it is free and `wanted` accepts its state. Returns `false` otherwise,
    /// and if the block's GiB is allocated as a whole.
    pub(crate) fn isolate(&self, wanted: impl Fn(State) -> bool) -> bool {
        self.use_whole(|state| state.isolate(&wanted)).is_some()
    }

    /// Puts an isolated block back as free. With `reported` the host has dropped its memory, so the
    /// block is no longer touched.
    ///
    /// # Panics
    /// If the block is neither isolated nor taken out by an attached host.
    pub(crate) fn put_back(&self, reported: bool) {
        if reported && self.state.load().has_exact_marks() {
            self.forget_touched();
        }
        self.watch.changed(self.state.put_back(reported));
    }

    /// Counts `frames` more frames as having no memory, before the block is first used. Returns the
    /// states before and after. The caller sets the frames' bits, unless the block has no memory at
    /// all then.
    pub(crate) fn set_missing(&self, frames: u32) -> Change {
        if self.state.load().is_free() {
            self.watch.enter();
        }
        let change = self.state.set_missing(frames);
        self.watch.changed(change);
        change
    }

    /// Takes the block's memory offline. Returns `false` if the block is not free or its GiB is
    /// allocated as a whole.
    pub(crate) fn set_offline(&self) -> bool {
        self.use_whole(AtomicState::set_offline).is_some()
    }

    /// Takes the block's memory online, all of it free. With `dropped` the host holds no memory for
    /// it. Returns `false` if the block is not offline.
    pub(crate) fn set_online(&self, dropped: bool) -> bool {
        if dropped && self.state.load().has_exact_marks() {
            self.forget_touched();
        }
        let change = self.state.set_online(dropped);
        if let Some(change) = change {
            self.watch.changed(change);
        }
        change.is_some()
    }

    /// Takes the block's memory online, all of it in use and touched. Returns `false` if the block
    /// is not offline. Only one thread at a time may call this.
    pub(crate) fn set_admitted(&self) -> bool {
        if !self.state.load().is_offline() {
            return false;
        }
        // No CPU reads the bits of a block that is offline.
        self.drop_exact_marks();
        self.bits.fill();
        let change = self.state.set_admitted();
        if let Some(change) = change {
            self.watch.changed(change);
        }
        change.is_some()
    }

    /// Takes `frames` free frames out of a block in partial use, to report them, and makes the
    /// block's touched marks exact. `take` takes the frames from the bitmap and returns whether it
    /// could. Returns `false`, with no frame taken, if there are no frame marks, the block is free
    /// or untouched or has fewer free frames, or `take` fails.
    ///
    /// Only the reporter may call this, so one thread at a time.
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
            self.raise(RunBound::ALL);
            return false;
        }
        // While the count includes these frames the block is not free. So no CPU can isolate it and
        // put it back as untouched between these two steps. Only the reporter makes marks exact.
        if !self.state.load().has_exact_marks() {
            for word in 0..WORDS {
                touched.mark(word, !0);
            }
            self.state.set_exact_marks(true);
        }
        true
    }

    /// Gives back the frames of `taken`, which [`borrow`](Self::borrow) took. If `reported`, the
    /// host has dropped their memory, so they are no longer touched.
    ///
    /// # Panics
    /// If one of the frames is not in use.
    pub(crate) fn give_borrowed(&self, taken: Taken, reported: bool) {
        if reported && let Some(touched) = self.touched {
            touched.unmark(taken.word, taken.mask);
        }
        self.give_word(taken);
    }

    /// Clears the touched marks of all frames: the host holds no memory for them.
    fn forget_touched(&self) {
        for word in 0..WORDS {
            if let Some(touched) = self.touched {
                touched.unmark(word, !0);
            }
        }
    }
}

/// Iterates over the `u64`s of the bitmap that the `frames` frames from index `first` on span, each
/// with the mask of these frames.
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
