//! The indices of zones, and of a zone's pageblocks, trees (64 MiB) and GiBs, each a type of its
//! own, and the arrays that take only the index of the matching type.
//!
//! A zone's arrays ([`Arrays`](crate::metadata::Arrays)) have one entry for each pageblock, each
//! tree or each GiB of the zone, extent after extent. An extent begins and ends with a whole tree.
//! So the tree of a pageblock follows from the pageblock's index alone: pageblock 70 is in tree 2,
//! where bit 6 stands for it. The GiB of a tree depends on the zone's extents:
//! [`Zone::gib_of`](crate::zone::Zone::gib_of).

use core::{
    marker::PhantomData,
    ops::{Index, Range},
    slice,
};

use crate::{
    gib::{GIB_BLOCKS, GIB_TREES},
    summary::TREE_BLOCKS,
};

/// The index of a zone: its position in the slice that was passed to [`Config::new`].
///
/// [`Allocator::zone_ids`] returns the ids of an allocator's zones. The allocator's methods panic
/// for an id without a zone.
///
/// ```
/// use ebb_mm::Allocator;
///
/// /// Returns the number of free frames in the zone that has the most.
/// fn most_free(allocator: &Allocator<'_>) -> Option<u64> {
///     let zones = allocator.zone_ids();
///     zones.map(|zone| allocator.zone_stats(zone).free_frames).max()
/// }
/// ```
///
/// A plain number is no zone:
///
/// ```compile_fail,E0308
/// use ebb_mm::Allocator;
///
/// /// Returns the number of free frames in the last zone.
/// fn last_free(allocator: &Allocator<'_>) -> u64 {
///     let last = allocator.zone_ids().len() - 1;
///     allocator.zone_stats(last).free_frames
/// }
/// ```
///
/// [`Allocator::zone_ids`]: crate::Allocator::zone_ids
/// [`Config::new`]: crate::Config::new
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ZoneId(usize);

impl ZoneId {
    /// The first zone, whose index is 0.
    pub const FIRST: Self = Self(0);

    /// Returns the id of the zone with this index. The index is not checked.
    #[inline]
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// Returns the index of the zone.
    #[inline]
    pub const fn index(self) -> usize {
        self.0
    }

    /// Returns the id behind this one. There may be no such zone.
    #[cfg(not(ebb_model))]
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// An index in arrays of a zone.
pub(crate) trait Id: Copy + Ord {
    /// The index of the first entry: 0.
    const FIRST: Self;

    /// Returns the id with this index. The index is not checked.
    fn new(index: usize) -> Self;

    /// Returns the index.
    fn index(self) -> usize;

    /// Returns the id that follows this one by `by` entries.
    #[inline]
    fn offset(self, by: usize) -> Self {
        Self::new(self.index() + by)
    }

    /// Returns the id behind this one.
    #[inline]
    fn next(self) -> Self {
        self.offset(1)
    }
}

/// Iterates over the ids in `range`, in ascending order.
#[inline]
pub(crate) fn each<I: Id>(range: Range<I>) -> impl ExactSizeIterator<Item = I> {
    (range.start.index()..range.end.index()).map(I::new)
}

/// The index of a pageblock (2 MiB) in the arrays of its zone.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct BlockId(usize);

/// The index of a tree (32 pageblocks) in the arrays of its zone.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct TreeId(usize);

/// The index of a GiB (16 trees, or fewer at the ends of an extent) in the arrays of its zone.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct GibId(usize);

impl Id for BlockId {
    const FIRST: Self = Self(0);

    #[inline]
    fn new(index: usize) -> Self {
        Self(index)
    }

    #[inline]
    fn index(self) -> usize {
        self.0
    }
}

impl Id for TreeId {
    const FIRST: Self = Self(0);

    #[inline]
    fn new(index: usize) -> Self {
        Self(index)
    }

    #[inline]
    fn index(self) -> usize {
        self.0
    }
}

impl Id for GibId {
    const FIRST: Self = Self(0);

    #[inline]
    fn new(index: usize) -> Self {
        Self(index)
    }

    #[inline]
    fn index(self) -> usize {
        self.0
    }
}

impl BlockId {
    /// Returns the tree that contains the pageblock.
    #[inline]
    pub(crate) const fn tree(self) -> TreeId {
        TreeId(self.0 / TREE_BLOCKS)
    }

    /// Returns the bit that stands for the pageblock in a mask of its tree: 0 to 31.
    #[inline]
    pub(crate) const fn bit(self) -> usize {
        self.0 % TREE_BLOCKS
    }

    /// Returns the number of pageblocks from this one to the end of its tree: 1 to 32.
    #[inline]
    pub(crate) const fn left_in_tree(self) -> usize {
        TREE_BLOCKS - self.bit()
    }

    /// Returns the two pageblocks, the lower one first, of the aligned pair (order 10) that
    /// contains this one. A tree consists of 16 such pairs.
    #[inline]
    pub(crate) const fn pair(self) -> [Self; 2] {
        [Self(self.0 & !1), Self(self.0 | 1)]
    }

    /// Returns the other pageblock of the pair.
    #[inline]
    pub(crate) const fn buddy(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Returns `true` if the pageblock is the lower one of its pair.
    #[inline]
    pub(crate) const fn starts_pair(self) -> bool {
        self.0.is_multiple_of(2)
    }
}

impl TreeId {
    /// Returns the pageblock of the tree that `bit`, from 0 to 31, stands for in a mask.
    #[inline]
    pub(crate) const fn block(self, bit: usize) -> BlockId {
        BlockId(self.0 * TREE_BLOCKS + bit)
    }

    /// Returns the first pageblock of the tree.
    #[inline]
    pub(crate) const fn first_block(self) -> BlockId {
        self.block(0)
    }

    /// Iterates over the 32 pageblocks of the tree, in ascending order.
    #[inline]
    pub(crate) fn blocks(self) -> impl ExactSizeIterator<Item = BlockId> {
        each(self.first_block()..self.next().first_block())
    }

    /// Returns the first tree of the pair of trees (128 MiB) that contains this one.
    #[inline]
    pub(crate) const fn pair_start(self) -> Self {
        Self(self.0 & !1)
    }

    /// Returns the other tree of the pair. The zone may lack it, if this is the zone's last tree.
    #[inline]
    pub(crate) const fn pair_other(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Returns the 16 trees of the GiB whose first tree is this one. The zone must have the whole
    /// GiB.
    #[inline]
    pub(crate) fn trees_of_gib(self) -> Range<Self> {
        self..self.offset(GIB_TREES)
    }

    /// Returns the 512 pageblocks of the GiB whose first tree is this one. The zone must have the
    /// whole GiB.
    #[inline]
    pub(crate) fn blocks_of_gib(self) -> Range<BlockId> {
        let first = self.first_block();
        first..first.offset(GIB_BLOCKS as usize)
    }
}

/// An array of a zone: one entry of type `T` for each pageblock, tree or GiB. Only an id of type
/// `I` finds an entry.
#[derive(Debug)]
pub(crate) struct Indexed<'m, I, T> {
    entries: &'m [T],
    by: PhantomData<fn(I)>,
}

/// An array with one entry for each pageblock of a zone.
pub(crate) type PerBlock<'m, T> = Indexed<'m, BlockId, T>;
/// An array with one entry for each tree of a zone.
pub(crate) type PerTree<'m, T> = Indexed<'m, TreeId, T>;
/// An array with one entry for each GiB of a zone.
pub(crate) type PerGib<'m, T> = Indexed<'m, GibId, T>;

impl<I, T> Clone for Indexed<'_, I, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, T> Copy for Indexed<'_, I, T> {}

impl<'m, I: Id, T> Indexed<'m, I, T> {
    /// Returns the array with these entries.
    pub(crate) const fn new(entries: &'m [T]) -> Self {
        Self {
            entries,
            by: PhantomData,
        }
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) const fn len(self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there are no entries: the array is optional, and the metadata lacks it.
    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the id behind the last entry.
    #[inline]
    pub(crate) fn end(self) -> I {
        I::new(self.len())
    }

    /// Iterates over the ids of all entries, in ascending order.
    #[inline]
    pub(crate) fn ids(self) -> impl ExactSizeIterator<Item = I> {
        each(I::FIRST..self.end())
    }

    /// Returns the entry, or `None` if there is no such entry.
    #[inline]
    pub(crate) fn get(self, id: I) -> Option<&'m T> {
        self.entries.get(id.index())
    }

    /// Returns the entries in `ids`.
    ///
    /// # Panics
    /// If one of them does not exist.
    #[inline]
    pub(crate) fn slice(self, ids: Range<I>) -> &'m [T] {
        &self.entries[ids.start.index()..ids.end.index()]
    }

    /// Iterates over all entries, in ascending order of their ids.
    #[inline]
    pub(crate) fn iter(self) -> slice::Iter<'m, T> {
        self.entries.iter()
    }

    /// Iterates over all entries with their ids, in ascending order.
    #[inline]
    pub(crate) fn entries(self) -> impl Iterator<Item = (I, &'m T)> {
        self.ids().zip(self.iter())
    }
}

impl<'m, T> PerBlock<'m, T> {
    /// Returns the 32 entries of the pageblocks of `tree`. The bit of a pageblock in its tree is
    /// the index of its entry.
    ///
    /// # Panics
    /// If there is no such tree.
    #[inline]
    pub(crate) fn of_tree(self, tree: TreeId) -> &'m [T] {
        self.slice(tree.first_block()..tree.next().first_block())
    }
}

impl<I: Id, T> Index<I> for Indexed<'_, I, T> {
    type Output = T;

    /// Returns the entry.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline]
    fn index(&self, id: I) -> &T {
        &self.entries[id.index()]
    }
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_block_is_found_by_its_tree_and_bit() {
        for index in 0..200 {
            let block = BlockId::new(index);
            let (tree, bit) = (block.tree(), block.bit());
            assert_eq!(tree.block(bit), block);
            assert_eq!(tree.blocks().nth(bit), Some(block));
            assert_eq!(
                block.offset(block.left_in_tree()),
                tree.next().first_block()
            );
        }
        let (tree, bit) = (BlockId::new(70).tree(), BlockId::new(70).bit());
        assert_eq!((tree, bit), (TreeId::new(2), 6));
    }

    #[test]
    fn pairs_are_aligned_and_lie_in_one_tree() {
        for low in each(BlockId::FIRST..BlockId::new(200)).step_by(2) {
            let high = low.next();
            assert!(low.starts_pair() && !high.starts_pair());
            assert_eq!((low.buddy(), high.buddy()), (high, low));
            assert_eq!((low.pair(), high.pair()), ([low, high], [low, high]));
            assert_eq!(low.tree(), high.tree());
        }
        let [low, high] = [6, 7].map(TreeId::new);
        assert_eq!((low.pair_other(), high.pair_other()), (high, low));
        assert_eq!((low.pair_start(), high.pair_start()), (low, low));
    }

    #[test]
    fn a_gib_has_the_blocks_of_its_trees() {
        let first = TreeId::new(3);
        let of_trees = each(first.trees_of_gib()).flat_map(TreeId::blocks);
        assert!(of_trees.eq(each(first.blocks_of_gib())));
        assert_eq!(each(first.blocks_of_gib()).len(), 512);
    }

    #[test]
    fn an_array_is_read_by_its_own_ids() {
        let entries: Vec<usize> = (0..64).collect();
        let array = PerBlock::new(&entries);
        assert!(array.ids().all(|block| array[block] == block.index()));
        assert!(
            array
                .entries()
                .all(|(block, &entry)| entry == block.index())
        );
        assert_eq!(array.of_tree(TreeId::new(1)), &entries[32..]);
        let inside = BlockId::new(5)..BlockId::new(8);
        assert_eq!(array.slice(inside), [5, 6, 7]);
        assert_eq!(
            (array.get(BlockId::new(63)), array.get(array.end())),
            (Some(&63), None)
        );
    }
}
