//! What the host gains if pageblocks are emptied ([`HostPlan`]), and how many free frames it gets
//! in no other way ([`Allocator::scattered_frames`]).
//!
//! Free blocks of the reporting order and above go to the host where they are. Migrating frames for
//! the sake of such a block would only copy. So below order 9 a free frame counts here only if it
//! lies in no free block of that order, and the host may hold memory for it.

use crate::{
    Allocator, Mobility, Order, ZoneId,
    bitmap::{WORD_FRAMES, WORDS, run, runs},
    ids::{BlockId, TreeId},
    state::{BLOCK_FRAMES, Class},
    zone::Zone,
};

use super::scan::is_movable;

/// The gain and the cost for the host if one pageblock is emptied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HostPlan {
    /// Number of frames that must be migrated.
    pub frames: u64,
    /// Number of frames that the host gets, at least 1.
    pub gained: u64,
}

impl Allocator<'_> {
    /// Returns the smallest order of free blocks that the host gets at present: the order of
    /// reporting or hinting, or 9 while an attached host takes free pageblocks. Returns `None`
    /// while the host gets no free memory.
    pub fn host_order(&self) -> Option<Order> {
        if self.is_shared() {
            Some(Order::PAGEBLOCK)
        } else {
            self.reporting_order()
        }
    }

    /// Returns the number of *scattered* free frames of a zone: those that the host gets only if
    /// pageblocks are emptied. `order` is the smallest order of free blocks that the host gets
    /// ([`host_order`](Self::host_order)).
    ///
    /// For orders 9 and above these are the free frames outside free pageblocks
    /// ([`ZoneFragmentation::scattered_frames`](crate::ZoneFragmentation::scattered_frames)). For
    /// smaller orders they are the frames of movable pageblocks that are in no free block of
    /// `order` and that the host may hold memory for. Then this reads the bitmaps of all movable
    /// pageblocks in partial use. At order 0 there are none.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn scattered_frames(&self, zone: ZoneId, order: Order) -> u64 {
        if order >= Order::PAGEBLOCK {
            return self.fragmentation(zone).scattered_frames();
        }
        if order == Order::BASE {
            return 0;
        }
        let zone = self.zone(zone).zone;
        let movable = Class::Partial(Mobility::Movable);
        zone.tree_ids()
            .filter(|&tree| zone.summary(tree).count(movable) != 0)
            .flat_map(TreeId::blocks)
            .filter(|&block| zone.arrays.states[block].load().is(movable))
            .map(|block| u64::from(stranded(zone, block, order)))
            .sum()
    }
}

/// Returns the number of frames that the host gains if `block` is emptied. `order` is the smallest
/// order of free blocks that the host gets. Returns 0 if emptying gains nothing for certain.
pub(super) fn gained(zone: &Zone<'_>, block: BlockId, order: Order) -> u32 {
    if order < Order::PAGEBLOCK {
        return stranded(zone, block, order);
    }
    if order == Order::PAGEBLOCK {
        return BLOCK_FRAMES;
    }
    // Only pairs of free pageblocks are reported. If the other one is in use, its gaps may be where
    // the frames go, and the host then gets neither.
    match zone.arrays.states[block.buddy()].load() {
        buddy if buddy.is_free() => 2 * BLOCK_FRAMES,
        buddy if is_movable(buddy) => BLOCK_FRAMES,
        _ => 0,
    }
}

/// Returns the number of free frames of a pageblock in partial use that lie in no free block of
/// `order`, from 0 to 8, and that the host may hold memory for.
fn stranded(zone: &Zone<'_>, block: BlockId, order: Order) -> u32 {
    let bits = &zone.arrays.bits[block];
    let exact = zone.arrays.states[block].load().has_exact_marks();
    let touched = zone.arrays.touched.get(block).filter(|_| exact);
    let free = core::array::from_fn(|word| !bits.word(word));
    let touched = core::array::from_fn(|word| touched.map_or(!0, |touched| touched.word(word)));
    stranded_in(free, touched, order)
}

/// Returns the number of frames that are `free` and `touched` (a bit for each), and in no free
/// block of `order`, from 0 to 8.
fn stranded_in(free: [u64; WORDS], touched: [u64; WORDS], order: Order) -> u32 {
    let count = |word: usize, whole: u64| (free[word] & touched[word] & !whole).count_ones();
    let Some(span) = order
        .frames()
        .checked_div(u64::from(WORD_FRAMES))
        .filter(|&span| span > 1)
    else {
        let order = order.get();
        // Blocks of one order do not overlap, so the product has each of their bits once.
        let whole = |word: usize| runs(free[word], order).wrapping_mul(run(order));
        return (0..WORDS).map(|word| count(word, whole(word))).sum();
    };
    let span = crate::frame::index(span);
    let spans = (0..WORDS).step_by(span).map(|first| first..first + span);
    spans
        .filter(|words| free[words.clone()].iter().any(|&word| word != !0))
        .flatten()
        .map(|word| count(word, 0))
        .sum()
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the frame's bit in a bitmap.
    fn has(bits: &[u64; WORDS], frame: usize) -> bool {
        bits[frame / 64] >> (frame % 64) & 1 != 0
    }

    proptest! {
        #[test]
        fn a_frame_counts_unless_its_aligned_block_is_free_or_the_host_lacks_it(
            free: [u64; WORDS],
            masks: [u64; WORDS],
            touched: [u64; WORDS],
        ) {
            let dense = core::array::from_fn(|word| free[word] | masks[word] | touched[7 - word]);
            let mut halves = [!0; WORDS];
            halves[3] = free[3];
            for free in [free, dense, halves, [!0; WORDS], [0; WORDS]] {
                for order in (0..9).filter_map(Order::new) {
                    let frames = 1_usize << order.get();
                    let whole = |frame: usize| {
                        let first = frame - frame % frames;
                        (first..first + frames).all(|frame| has(&free, frame))
                    };
                    let expected = (0..512)
                        .filter(|&frame| has(&free, frame) && has(&touched, frame) && !whole(frame))
                        .count();
                    let found = stranded_in(free, touched, order);
                    prop_assert_eq!(found as usize, expected, "order {}", order.get());
                }
            }
        }
    }
}
