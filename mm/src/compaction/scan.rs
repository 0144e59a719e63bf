//! A scan of a zone's pageblocks for compaction ([`Scan`]): the emptiest pageblocks in partial
//! use, and how many free frames the others have. It reads state words only.

use crate::{
    Mobility,
    ids::{BlockId, Id},
    state::{BLOCK_FRAMES, Class, State},
    zone::Zone,
};

/// The most pageblocks that a scan returns to be emptied: the ones with the fewest frames in use.
pub(crate) const SOURCES: usize = 64;

/// A pageblock that may be emptied. The order is that of the price. Of pageblocks with the same
/// price the highest comes first, as targets are searched upwards.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Source {
    /// The number of frames that must be migrated for each 512 frames that are gained.
    price: u32,
    used: u32,
    /// Distance from the highest index that a pageblock can have.
    from_end: u32,
}

impl Source {
    const NONE: Self = Self {
        price: 0,
        used: 0,
        from_end: 0,
    };

    /// Returns the pageblock `block` with `used` frames in use, whose emptying gains `gained`
    /// frames, at least 1.
    pub(super) fn new(block: BlockId, used: u32, gained: u32) -> Self {
        let block = u32::try_from(block.index()).unwrap_or(u32::MAX);
        Self {
            price: used * BLOCK_FRAMES / gained,
            used,
            from_end: u32::MAX - block,
        }
    }

    /// Returns the number of the pageblock's frames in use.
    pub(crate) const fn used(self) -> u32 {
        self.used
    }

    /// Returns the pageblock.
    pub(crate) fn block(self) -> BlockId {
        BlockId::new((u32::MAX - self.from_end) as usize)
    }
}

/// Returns `true` if frames can be migrated out of, or into, a pageblock in this state: it contains
/// movable frames, has free frames, is not being emptied, and no per-CPU cache allocates from it at
/// the moment.
pub(crate) fn is_movable(state: State) -> bool {
    state.is(Class::Partial(Mobility::Movable)) && !state.is_held()
}

/// The result of a scan of a zone: which pageblocks compaction can empty, and how many free frames
/// the others have.
#[derive(Debug)]
pub(crate) struct Scan {
    /// By number of frames in use: the number of movable pageblocks.
    blocks: [u32; BLOCK_FRAMES as usize],
    /// The emptiest pageblocks, the cheapest first.
    sources: [Source; SOURCES],
    len: usize,
    /// The index of the first source that was not yet taken.
    next: usize,
    /// Number of free frames in all movable pageblocks.
    room: u64,
}

impl Scan {
    /// Returns the result of no scan: no pageblock can be emptied.
    pub(crate) const fn new() -> Self {
        Self {
            blocks: [0; BLOCK_FRAMES as usize],
            sources: [Source::NONE; SOURCES],
            len: 0,
            next: 0,
            room: 0,
        }
    }

    /// Scans a zone and replaces the earlier result. Returns how many cache lines of state words it
    /// read, each with 32 pageblocks. `gained` gets a pageblock and returns how many frames are
    /// gained if it is emptied. With 0 it is not emptied. `skip` returns `true` for pageblocks that
    /// are not to be tried. All these remain possible targets.
    pub(crate) fn scan(
        &mut self,
        zone: &Zone<'_>,
        gained: impl Fn(BlockId) -> u32,
        mut skip: impl FnMut(Source) -> bool,
    ) -> u64 {
        *self = Self::new();
        let mut best = Best::new();
        let mut lines_read = 0;
        for tree in zone.tree_ids() {
            if zone.summary(tree).count(Class::Partial(Mobility::Movable)) == 0 {
                continue;
            }
            lines_read += 1;
            for block in tree.blocks() {
                let state = zone.arrays.states[block].load();
                if !is_movable(state) {
                    continue;
                }
                let used = state.used();
                self.blocks[used as usize] += 1;
                self.room += u64::from(BLOCK_FRAMES - used);
                let gained = gained(block);
                if gained == 0 {
                    continue;
                }
                let source = Source::new(block, used, gained);
                if best.admits(source) && !skip(source) {
                    best.add(source);
                }
            }
        }
        let found = best.finish();
        self.len = found.len();
        self.sources[..found.len()].copy_from_slice(found);
        lines_read
    }

    /// Returns the pageblocks to empty that were not yet taken, the cheapest first. Their number is
    /// limited by the free frames in all movable pageblocks, so the slice may be empty.
    ///
    /// Each emptied pageblock uses up 512 free frames, however many frames are in use of it: its
    /// own free frames, and one for each frame that is migrated.
    pub(crate) fn sources(&self) -> &[Source] {
        let most = usize::try_from(self.room / u64::from(BLOCK_FRAMES)).unwrap_or(SOURCES);
        &self.sources[self.next..self.len.min(self.next.saturating_add(most))]
    }

    /// Takes the first of the pageblocks of [`sources`](Self::sources), the cheapest, and returns
    /// it. Returns `None` if there is none.
    pub(crate) fn pop(&mut self) -> Option<Source> {
        let source = *self.sources().first()?;
        self.next += 1;
        Some(source)
    }

    /// Returns the largest number `n` such that the pageblocks with at least `n` frames in use have
    /// enough free frames for all frames in use of `sources`. Returns 1 if all pageblocks together
    /// have too few. The sources themselves do not count as targets. They must be in ascending
    /// order of their frames in use.
    pub(crate) fn fullest_with_room(&self, sources: &[Source]) -> u32 {
        let wanted: u64 = sources.iter().map(|source| u64::from(source.used)).sum();
        let mut sources = sources.iter().rev().peekable();
        let mut room = 0;
        for used in (1..BLOCK_FRAMES).rev() {
            let mut blocks = self.blocks[used as usize];
            while sources.next_if(|source| source.used == used).is_some() {
                blocks = blocks.saturating_sub(1);
            }
            room += u64::from(blocks) * u64::from(BLOCK_FRAMES - used);
            if room >= wanted {
                return used;
            }
        }
        1
    }

    /// Notes that the number of frames in use of a pageblock has changed from `before` to `after`.
    /// 0 and 512 mean that it is not a movable pageblock in partial use.
    pub(crate) fn changed(&mut self, before: u32, after: u32) {
        let partial = 1..BLOCK_FRAMES;
        if partial.contains(&before) {
            let blocks = &mut self.blocks[before as usize];
            *blocks = blocks.saturating_sub(1);
            self.room = self.room.saturating_sub(u64::from(BLOCK_FRAMES - before));
        }
        if partial.contains(&after) {
            self.blocks[after as usize] += 1;
            self.room += u64::from(BLOCK_FRAMES - after);
        }
    }
}

/// The cheapest of many sources. The list has twice the necessary capacity. When it is full, the
/// more expensive half is dropped.
struct Best {
    list: [Source; 2 * SOURCES],
    len: usize,
    /// Sources that are not cheaper than this are useless, as enough cheaper ones were found.
    limit: Option<Source>,
}

impl Best {
    const fn new() -> Self {
        Self {
            list: [Source::NONE; 2 * SOURCES],
            len: 0,
            limit: None,
        }
    }

    fn admits(&self, source: Source) -> bool {
        self.limit.is_none_or(|limit| source < limit)
    }

    fn add(&mut self, source: Source) {
        if self.len == self.list.len() {
            let (_, last, _) = self.list.select_nth_unstable(SOURCES - 1);
            self.limit = Some(*last);
            self.len = SOURCES;
        }
        self.list[self.len] = source;
        self.len += 1;
    }

    fn finish(&mut self) -> &[Source] {
        let found = &mut self.list[..self.len];
        found.sort_unstable();
        &found[..self.len.min(SOURCES)]
    }
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;

    fn scan(used: &[u32]) -> Scan {
        let mut scan = Scan::new();
        let mut best = Best::new();
        for (block, &used) in used.iter().enumerate() {
            scan.changed(0, used);
            let source = Source::new(BlockId::new(block), used, BLOCK_FRAMES);
            if best.admits(source) {
                best.add(source);
            }
        }
        let found = best.finish();
        scan.len = found.len();
        scan.sources[..found.len()].copy_from_slice(found);
        scan
    }

    #[test]
    fn the_cheapest_come_first_and_of_those_the_highest() {
        let counts: std::vec::Vec<u32> = (0..500).map(|block| 1 + block * 7 % 100).collect();
        let scan = scan(&counts);
        let mut all: std::vec::Vec<_> = counts.iter().zip(0_usize..).collect();
        all.sort_by_key(|&(&used, block)| (used, usize::MAX - block));
        assert_eq!(scan.sources().len(), SOURCES);
        for (source, (&used, block)) in scan.sources().iter().zip(all) {
            assert_eq!((source.used(), source.block()), (used, BlockId::new(block)));
        }
    }

    #[test]
    fn the_most_sources_are_found_that_the_room_of_all_holds() {
        // Brute force: check for every set of blocks whether the others have enough free frames.
        let counts = [100, 300, 511, 7, 450, 200, 128];
        let scan = scan(&counts);
        let room = |set: u32| {
            let of = |inside: bool| move |block: &usize| (set >> block & 1 != 0) == inside;
            let blocks = 0..counts.len();
            let taken: u32 = blocks.clone().filter(of(true)).map(|b| counts[b]).sum();
            let free: u32 = blocks.filter(of(false)).map(|b| 512 - counts[b]).sum();
            (taken <= free).then_some((set.count_ones() as usize, taken))
        };
        let fits: std::vec::Vec<_> = (1..1 << counts.len()).filter_map(room).collect();
        let most = fits.iter().map(|fit| fit.0).max().expect("some fit");
        assert_eq!(scan.sources().len(), most);
        for blocks in 1..=most {
            let least = fits
                .iter()
                .filter(|fit| fit.0 == blocks)
                .map(|fit| fit.1)
                .min();
            let cost = scan.sources()[..blocks].iter().map(|s| s.used()).sum();
            assert_eq!(least, Some(cost), "{blocks} blocks");
        }
    }

    #[test]
    fn the_fullest_that_have_room_are_the_targets() {
        let scan = scan(&[10, 20, 400, 500, 510]);
        let sources = scan.sources();
        assert_eq!(scan.fullest_with_room(&sources[..1]), 500, "2 + 12 frames");
        assert_eq!(scan.fullest_with_room(&sources[..2]), 400);
        let same = self::scan(&[128; 8]);
        assert_eq!(same.fullest_with_room(&same.sources()[..6]), 128);
    }
}
