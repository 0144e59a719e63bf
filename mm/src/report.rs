//! One report request to the host: collects free ranges, isolates them, sends them to the sink and
//! puts them back.

use core::ops::Range;

use crate::{
    Allocator, Frame, FrameRange, Order, Poll, PutBack, ReportSink, ZoneId,
    bitmap::{Line, WORD_FRAMES, WORDS, run, runs},
    block::words,
    frame::{PAGEBLOCK_FRAMES, index},
    ids::{BlockId, Id, TreeId, each},
    state::State,
    zone::ZoneRef,
};

/// The most ranges in one request (Linux's `PAGE_REPORTING_CAPACITY`).
pub const REQUEST_RANGES: usize = 32;
/// The most frames in one request: 32 ranges of one pageblock each. This memory cannot be allocated
/// while the host handles the request.
pub const REQUEST_FRAMES: u64 = REQUEST_RANGES as u64 * PAGEBLOCK_FRAMES;

/// Whether [`ReportRequest::collect`] examined all of a pageblock.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Collected {
    /// The request has all ranges of the pageblock that should be reported.
    All,
    /// The request is full. Send it, then collect from the same pageblock again.
    Full,
}

/// A report request that is being filled. Its ranges are isolated until [`Self::send`] puts them
/// back. If a request with ranges is dropped without that, their frames are lost.
#[derive(Debug)]
pub(crate) struct ReportRequest<'a, 'm> {
    allocator: &'a Allocator<'m>,
    zone: ZoneId,
    order: Order,
    ranges: [FrameRange; REQUEST_RANGES],
    len: usize,
    frames: u64,
    /// The most frames that this request may hold.
    limit: u64,
}

impl<'a, 'm> ReportRequest<'a, 'm> {
    /// Returns an empty request for ranges of `zone` of at least `order`. It takes at most `limit`
    /// frames, and never more than [`REQUEST_FRAMES`].
    pub(crate) fn new(
        allocator: &'a Allocator<'m>,
        zone: ZoneId,
        order: Order,
        limit: u64,
    ) -> Self {
        let none = FrameRange::new(Frame::new(0), 0);
        Self {
            allocator,
            zone,
            order,
            ranges: [none; REQUEST_RANGES],
            len: 0,
            frames: 0,
            limit: limit.min(REQUEST_FRAMES),
        }
    }

    /// Returns the ranges collected so far, in the order in which they were collected.
    pub(crate) fn ranges(&self) -> &[FrameRange] {
        &self.ranges[..self.len]
    }

    /// Returns the number of frames collected so far.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    fn at(&self) -> ZoneRef<'a, 'm> {
        self.allocator.zone(self.zone)
    }

    /// Returns whether there is space for `range`. It needs no entry of its own if it follows the
    /// last range.
    fn fits(&self, range: FrameRange) -> bool {
        self.frames + range.frames <= self.limit
            && (self.len < REQUEST_RANGES || self.follows(range))
    }

    /// Returns whether `range` begins at the end of the last range.
    fn follows(&self, range: FrameRange) -> bool {
        self.ranges()
            .last()
            .is_some_and(|last| last.end() == range.start)
    }

    fn push(&mut self, range: FrameRange) {
        debug_assert!(self.fits(range), "{range:?} does not fit");
        self.frames += range.frames;
        if self.follows(range) {
            self.ranges[self.len - 1].frames += range.frames;
        } else {
            self.ranges[self.len] = range;
            self.len += 1;
        }
    }

    /// Isolates and collects the free ranges to report in `blocks`, pageblocks of one tree
    /// (64 MiB). Returns the first block that was not finished because the request is full, or
    /// `None` if all were finished.
    pub(crate) fn collect_in_tree(&mut self, blocks: Range<BlockId>) -> Option<BlockId> {
        let fits = |request: &mut Self, block| request.collect(block) == Collected::All;
        if self.order != Order::PAGEBLOCK {
            return each(blocks).find(|&block| !fits(self, block));
        }
        let tree = blocks.start.tree();
        let (mut whole, mut exact_marks) = (0_u32, false);
        let states = self.at().zone.arrays.states.slice(blocks.clone());
        for (state, bit) in states.iter().zip(blocks.start.bit()..) {
            let state = state.load();
            whole |= u32::from(state.is_touched_whole()) << bit;
            exact_marks |= state.has_exact_marks();
        }
        let taken = self.fitting(whole);
        self.take_in_tree(tree, taken);
        if taken != whole {
            return Some(tree.block((whole & !taken).trailing_zeros() as usize));
        }
        // Pageblocks whose frames have their own touched bits follow one by one. The others are
        // isolated by now.
        let mut rest = each(blocks).filter(|_| exact_marks);
        rest.find(|&block| !fits(self, block))
    }

    /// Returns the lowest of `blocks` (a bit for each pageblock of a tree) for which the request
    /// has space left. Ranges cannot run out, as a request has as many ranges as pageblocks.
    fn fitting(&self, blocks: u32) -> u32 {
        const { assert!(REQUEST_FRAMES <= REQUEST_RANGES as u64 * PAGEBLOCK_FRAMES) };
        let room = self.limit.saturating_sub(self.frames) / PAGEBLOCK_FRAMES;
        if u64::from(blocks.count_ones()) <= room {
            return blocks;
        }
        let left = (0..room).fold(blocks, |left, _| left & left.wrapping_sub(1));
        blocks & !left
    }

    /// Isolates and collects those of `blocks` (a bit for each pageblock of `tree`) that are free
    /// and touched as a whole.
    fn take_in_tree(&mut self, tree: TreeId, blocks: u32) {
        if blocks == 0 {
            return;
        }
        let mut left = self.at().isolate_in_tree(tree, blocks);
        // Bounded by the pageblocks of a tree: each turn removes some.
        while left != 0 {
            let start = left.trailing_zeros();
            let blocks = (left >> start).trailing_ones();
            let frame = self.at().zone.first_frame(tree.block(start as usize));
            let frames = u64::from(blocks) * PAGEBLOCK_FRAMES;
            self.push(FrameRange::new(frame, frames));
            left &= !run_of(start as usize, blocks.into());
        }
    }

    /// Isolates and collects the free ranges of `block` that should be reported: of the request's
    /// order or above, and touched. At order 10 it examines the pair of pageblocks that starts at
    /// `block`, and nothing if no pair does. Returns [`Collected::Full`] if the request has no
    /// space for a range; what was collected before stays in it.
    pub(crate) fn collect(&mut self, block: BlockId) -> Collected {
        let state = self.at().zone.arrays.states[block].load();
        if self.order > Order::PAGEBLOCK {
            return if block.starts_pair() {
                self.collect_pair(block)
            } else {
                Collected::All
            };
        }
        if state.is_free() {
            return self.collect_whole(block, state);
        }
        let partial = !state.is_whole();
        if self.order == Order::PAGEBLOCK || !partial || !state.is_touched() {
            return Collected::All;
        }
        if self.order.get() <= 6 {
            self.collect_in_words(block)
        } else {
            self.collect_spans(block)
        }
    }

    /// Isolates and collects a free pageblock if it is touched.
    fn collect_whole(&mut self, block: BlockId, state: State) -> Collected {
        if !state.is_touched() {
            return Collected::All;
        }
        let range = FrameRange::new(self.at().zone.first_frame(block), PAGEBLOCK_FRAMES);
        if !self.fits(range) {
            return Collected::Full;
        }
        let Some(isolated) = self
            .allocator
            .isolate_block(self.zone, block, State::is_touched)
        else {
            // The pageblock was allocated in the meantime. A free after this announces it again.
            return Collected::All;
        };
        let at = self.at().block(block);
        if at.state.load().has_exact_marks()
            && at.touched.is_some_and(|marks| marks.count_ones() == 0)
        {
            // All its frames were reported one by one before.
            self.allocator.put_back(isolated, PutBack::Reported);
        } else {
            self.push(range);
        }
        Collected::All
    }

    /// Isolates and collects the pair of pageblocks from `block` on, if both are free and one is
    /// touched.
    fn collect_pair(&mut self, block: BlockId) -> Collected {
        let states = self.at().zone.arrays.states;
        let [low, high] = [block, block.next()].map(|block| states[block].load());
        if !low.is_free() || !high.is_free() || !(low.is_touched() || high.is_touched()) {
            return Collected::All;
        }
        let first = self.at().zone.first_frame(block);
        let range = FrameRange::new(first, Order::MAX.frames());
        if !self.fits(range) {
            return Collected::Full;
        }
        let Some(low) = self.allocator.isolate_block(self.zone, block, |_| true) else {
            return Collected::All;
        };
        match self
            .allocator
            .isolate_block(self.zone, block.next(), |_| true)
        {
            Some(_) => self.push(range),
            None => self.allocator.put_back(low, PutBack::Unchanged),
        }
        Collected::All
    }

    /// Returns the frames of bitmap word `word` that the host may hold memory for. Without exact
    /// touched bits that is every frame.
    fn touched(&self, block: BlockId, word: usize) -> u64 {
        let at = self.at().block(block);
        match at.touched {
            Some(touched) if at.state.load().has_exact_marks() => touched.word(word),
            _ => !0,
        }
    }

    /// Collects free runs of orders 0 to 6, which fit a bitmap word, in a partly used pageblock.
    fn collect_in_words(&mut self, block: BlockId) -> Collected {
        let order = self.order.get();
        let first = self.at().zone.first_frame(block);
        for word in 0..WORDS {
            let free = !self.at().zone.arrays.bits[block].word(word);
            let touched = self.touched(block, word);
            let mut starts = runs(free, order);
            // Bounded by the 64 bits: each turn takes one away.
            while starts != 0 {
                let bit = starts.trailing_zeros();
                starts &= starts - 1;
                let mask = run(order) << bit;
                if touched & mask == 0 {
                    continue;
                }
                let frame = word as u64 * u64::from(WORD_FRAMES) + u64::from(bit);
                let range = FrameRange::new(first.offset(frame), self.order.frames());
                if !self.fits(range) {
                    return Collected::Full;
                }
                if self.borrow(block, 1 << order, |bits| bits.take_exactly(word, mask)) {
                    self.push(range);
                }
            }
        }
        Collected::All
    }

    /// Collects free runs of orders 7 and 8, which span bitmap words, in a partly used pageblock.
    fn collect_spans(&mut self, block: BlockId) -> Collected {
        let frames = 1 << self.order.get();
        let span = (frames / WORD_FRAMES) as usize;
        let at = self.at().zone.first_frame(block);
        for first in (0..WORDS).step_by(span) {
            let bits = &self.at().zone.arrays.bits[block];
            let free = (first..first + span).all(|word| bits.word(word) == 0);
            let touched = (first..first + span).any(|word| self.touched(block, word) != 0);
            if !free || !touched {
                continue;
            }
            let offset = first as u64 * u64::from(WORD_FRAMES);
            let range = FrameRange::new(at.offset(offset), self.order.frames());
            if !self.fits(range) {
                return Collected::Full;
            }
            if self.borrow(block, frames, |bits| bits.take_words(first, span)) {
                self.push(range);
            }
        }
        Collected::All
    }

    /// Takes `frames` frames out of a partly used pageblock with `take`, and counts them as
    /// isolated. Returns `false` if one of them was allocated in the meantime.
    fn borrow(&self, block: BlockId, frames: u32, take: impl FnOnce(&Line) -> bool) -> bool {
        let zone = self.at().zone;
        zone.count_isolation();
        // Before the frames are taken, and in `put_back_some` until they are free again: a request
        // that misses them must find them counted.
        zone.count_isolated(i64::from(frames));
        let borrowed = self.at().block(block).borrow(frames, take);
        if borrowed {
            zone.count_free(-i64::from(frames));
        } else {
            zone.count_isolated(-i64::from(frames));
        }
        borrowed
    }

    /// Sends the request to `sink` unless it is empty, puts all ranges back and adds the request to
    /// the counts in `poll`.
    ///
    /// # Errors
    /// Fails with the error of `sink`. The ranges go back unchanged then and still count as
    /// touched, and `poll` is unchanged. If the host may still drop the ranges, they do not go
    /// back.
    pub(crate) fn send<S: ReportSink>(
        self,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> Result<(), S::Error> {
        if self.frames == 0 {
            return Ok(());
        }
        let (ranges, frames) = (self.len as u64, self.frames);
        let sent = sink.report(self.ranges());
        match &sent {
            Ok(()) => self.put_back(PutBack::Reported),
            // The frames are lost. Not counted as isolated, so that no request waits for them.
            Err(error) if S::may_drop_later(error) => {
                self.at().zone.count_isolated(-(frames.cast_signed()));
            }
            Err(_) => self.put_back(PutBack::Unchanged),
        }
        sink.give_way();
        sent?;
        poll.requests += 1;
        poll.ranges += ranges;
        poll.frames += frames;
        Ok(())
    }

    /// Puts all ranges back into the allocator: as reported, or unchanged.
    fn put_back(mut self, how: PutBack) {
        for range in &self.ranges[..self.len] {
            let mut frame = range.start;
            while frame < range.end() {
                let frames = range.end().number() - frame.number();
                frame = frame.offset(self.put_back_some(frame, frames, how));
            }
        }
        self.len = 0;
    }

    /// Puts the first of `frames` isolated frames from `start` on back: either adjacent isolated
    /// pageblocks of one tree, or frames of one pageblock. Returns the number of frames that were
    /// put back.
    fn put_back_some(&self, start: Frame, frames: u64, how: PutBack) -> u64 {
        let zone = self.at().zone;
        let Some(block) = zone.block_of(start) else {
            unreachable!("{start:?} was isolated")
        };
        let most = block.left_in_tree().min(index(frames / PAGEBLOCK_FRAMES));
        let states = zone.arrays.states.slice(block..block.offset(most)).iter();
        let mut isolated = states
            .take_while(|state| state.load().is_isolated())
            .count() as u64;
        if isolated != 0 {
            let last = start.offset((isolated - 1) * PAGEBLOCK_FRAMES);
            if zone.block_of(last) != Some(block.offset(index(isolated - 1))) {
                // The pageblocks are not adjacent in memory: another extent begins between them.
                isolated = 1;
            }
            let blocks = run_of(block.bit(), isolated);
            self.at().put_back_in_tree(block.tree(), blocks, how);
            return isolated * PAGEBLOCK_FRAMES;
        }
        let inside = start.number() % PAGEBLOCK_FRAMES;
        let frames = frames.min(PAGEBLOCK_FRAMES - inside);
        let at = self.at().block(block);
        let count = u32::try_from(frames).unwrap_or(0);
        for word in words(index(inside), count) {
            at.give_borrowed(word, how == PutBack::Reported);
        }
        zone.count_free(frames.cast_signed());
        zone.count_isolated(-(frames.cast_signed()));
        frames
    }
}

/// Returns a mask of `blocks` bits from bit `start` on, a bit for each pageblock of a tree.
fn run_of(start: usize, blocks: u64) -> u32 {
    let all = (1_u64 << blocks) - 1;
    #[expect(clippy::cast_possible_truncation, reason = "a tree has 32 blocks")]
    let run = (all << start) as u32;
    run
}
