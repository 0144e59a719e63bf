//! A radix tree from page index to page: pure logic.
//!
//! Sparse files of any size cost memory only for the pages that they have. An inner node serves 64
//! children, a file of one page needs no node at all, and a node is freed with its last child.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

const BITS: u32 = 6;
const FANOUT: usize = 1 << BITS;
/// Enough levels for every 52-bit page index. It bounds every recursion below.
const MAX_HEIGHT: u32 = 9;

/// The error if memory for an inner node is short.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NoMemory;

struct Inner<T> {
    used: u16,
    slots: Box<[Option<Slot<T>>]>,
}

enum Slot<T> {
    Inner(Inner<T>),
    Leaf(T),
}

impl<T> Inner<T> {
    fn new() -> Result<Self, NoMemory> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(FANOUT).map_err(|_| NoMemory)?;
        slots.resize_with(FANOUT, || None);
        Ok(Self {
            used: 0,
            slots: slots.into_boxed_slice(),
        })
    }
}

/// The progress of [`RadixTree::take_batch`].
struct Taken<'a, T> {
    batch: &'a mut [Option<T>],
    count: usize,
    next: u64,
}

/// A radix tree from page indexes to pages of type `T`.
pub struct RadixTree<T> {
    /// The root node. If `height` is 0, it is the leaf of index 0.
    root: Option<Slot<T>>,
    height: u32,
    len: usize,
}

impl<T> Default for RadixTree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> core::fmt::Debug for RadixTree<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RadixTree")
            .field("len", &self.len)
            .field("height", &self.height)
            .finish()
    }
}

fn slot_of(index: u64, level: u32) -> usize {
    // The mask keeps six bits, so the value fits.
    usize::try_from((index >> (BITS * (level - 1))) & (FANOUT as u64 - 1)).unwrap_or(0)
}

/// Returns `count`, or the number of slots in a node if that is less.
fn bounded(count: u64) -> usize {
    usize::try_from(count).unwrap_or(FANOUT).min(FANOUT)
}

/// Returns the first index that a tree of `height` levels cannot hold.
fn capacity(height: u32) -> u64 {
    1_u64.checked_shl(BITS * height).unwrap_or(u64::MAX)
}

impl<T> RadixTree<T> {
    /// Returns an empty tree.
    pub const fn new() -> Self {
        Self {
            root: None,
            height: 0,
            len: 0,
        }
    }

    /// Returns the number of pages in the tree.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the tree is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the page at `index`, or `None` if there is no page.
    pub fn get(&self, index: u64) -> Option<&T> {
        if index >= capacity(self.height) {
            return None;
        }
        let mut slot = self.root.as_ref()?;
        let mut level = self.height;
        loop {
            match slot {
                Slot::Leaf(value) => return Some(value),
                Slot::Inner(inner) => {
                    slot = inner.slots[slot_of(index, level)].as_ref()?;
                    level -= 1;
                }
            }
        }
    }

    /// Calls `each` with each page whose index is in `range`, and its index, in rising order. Looks
    /// once for the pages of a node, so it is cheaper than [`Self::get`] for each index.
    pub fn for_each_in(&self, range: Range<u64>, mut each: impl FnMut(u64, &T)) {
        let end = range.end.min(capacity(self.height));
        let mut index = range.start;
        while index < end {
            let behind = end.min((index | (FANOUT as u64 - 1)) + 1);
            let row = self.row(index);
            let first = if row.len() == FANOUT {
                slot_of(index, 1)
            } else {
                0
            };
            for (index, slot) in (index..behind).zip(row.iter().skip(first)) {
                if let Some(Slot::Leaf(value)) = slot {
                    each(index, value);
                }
            }
            index = behind;
        }
    }

    /// Returns the slots of the lowest node for `index`: those for the indexes that differ from it
    /// in the last six bits only. If the tree has no nodes, returns its only slot. Returns an empty
    /// slice if there is no such node. The tree's height must suffice for `index`.
    #[inline]
    fn row(&self, index: u64) -> &[Option<Slot<T>>] {
        let mut slots = core::slice::from_ref(&self.root);
        let mut at = 0;
        for level in (1..=self.height).rev() {
            let Some(Slot::Inner(inner)) = &slots[at] else {
                return &[];
            };
            slots = &inner.slots;
            at = slot_of(index, level);
        }
        slots
    }

    /// Returns the lowest node for `index`, for modification. Returns `None` if there is none.
    #[inline]
    fn lowest(&mut self, index: u64) -> Option<&mut Inner<T>> {
        let mut slot = &mut self.root;
        for level in (2..=self.height).rev() {
            let Some(Slot::Inner(inner)) = slot else {
                return None;
            };
            slot = &mut inner.slots[slot_of(index, level)];
        }
        match slot {
            Some(Slot::Inner(inner)) => Some(inner),
            _ => None,
        }
    }

    /// Returns the page at `index` for modification, or `None` if there is no page.
    pub fn get_mut(&mut self, index: u64) -> Option<&mut T> {
        if index >= capacity(self.height) {
            return None;
        }
        let mut slot = self.root.as_mut()?;
        let mut level = self.height;
        loop {
            match slot {
                Slot::Leaf(value) => return Some(value),
                Slot::Inner(inner) => {
                    slot = inner.slots[slot_of(index, level)].as_mut()?;
                    level -= 1;
                }
            }
        }
    }

    /// Puts the page `value` at `index`. Returns the page that was there before, or `None` if there
    /// was no page.
    ///
    /// # Errors
    /// [`NoMemory`] if memory is short or `index` is too large. The contents are unchanged then,
    /// and `value` is dropped.
    pub fn insert(&mut self, index: u64, value: T) -> Result<Option<T>, NoMemory> {
        if index < capacity(self.height)
            && let Some(inner) = self.lowest(index)
        {
            // The usual case: the nodes are there.
            let old = inner.slots[slot_of(index, 1)].replace(Slot::Leaf(value));
            if let Some(Slot::Leaf(old)) = old {
                return Ok(Some(old));
            }
            inner.used += 1;
            self.len += 1;
            return Ok(None);
        }
        if index >= capacity(MAX_HEIGHT) {
            return Err(NoMemory);
        }
        while index >= capacity(self.height) {
            if let Some(old) = self.root.take() {
                match Inner::new() {
                    Ok(mut inner) => {
                        inner.slots[0] = Some(old);
                        inner.used = 1;
                        self.root = Some(Slot::Inner(inner));
                    }
                    Err(error) => {
                        self.root = Some(old);
                        return Err(error);
                    }
                }
            }
            self.height += 1;
        }
        let replaced = Self::insert_below(&mut self.root, self.height, index, value);
        match &replaced {
            Ok(None) => self.len += 1,
            Ok(Some(_)) => {}
            Err(_) => self.shrink(),
        }
        replaced
    }

    fn insert_below(
        slot: &mut Option<Slot<T>>,
        level: u32,
        index: u64,
        value: T,
    ) -> Result<Option<T>, NoMemory> {
        if level == 0 {
            return Ok(match slot.replace(Slot::Leaf(value)) {
                Some(Slot::Leaf(old)) => Some(old),
                _ => None,
            });
        }
        if slot.is_none() {
            *slot = Some(Slot::Inner(Inner::new()?));
        }
        let Some(Slot::Inner(inner)) = slot else {
            return Err(NoMemory);
        };
        let child = &mut inner.slots[slot_of(index, level)];
        let was_empty = child.is_none();
        let result = Self::insert_below(child, level - 1, index, value);
        if was_empty && child.is_some() {
            inner.used += 1;
        }
        if inner.used == 0 {
            *slot = None;
        }
        result
    }

    /// Returns the index of the first page at or above `index`, and that page. Returns `None` if
    /// there is no such page.
    pub fn next_from(&self, index: u64) -> Option<(u64, &T)> {
        if index >= capacity(self.height) {
            return None;
        }
        Self::next_below(self.root.as_ref()?, self.height, 0, index)
    }

    fn next_below(slot: &Slot<T>, level: u32, base: u64, from: u64) -> Option<(u64, &T)> {
        match slot {
            Slot::Leaf(value) => (base >= from).then_some((base, value)),
            Slot::Inner(inner) => {
                let span = capacity(level - 1);
                let first = if from <= base {
                    0
                } else {
                    (from - base) / span
                };
                let first = bounded(first);
                (first..FANOUT).find_map(|at| {
                    let child = inner.slots[at].as_ref()?;
                    Self::next_below(child, level - 1, base + at as u64 * span, from)
                })
            }
        }
    }

    /// Removes the first pages in `from..end` and puts them into `batch`, until it is full. Returns
    /// the number of removed pages, and the index from which to continue. If fewer pages were
    /// removed than `batch` has places, no page is left in `from..end`.
    pub fn take_batch(&mut self, from: u64, end: u64, batch: &mut [Option<T>]) -> (usize, u64) {
        let end = end.min(capacity(self.height));
        let mut taken = Taken {
            batch,
            count: 0,
            next: from.min(end),
        };
        if taken.next < end {
            Self::take_below(&mut self.root, self.height, 0, end, &mut taken);
        }
        let Taken { count, next, .. } = taken;
        self.len -= count;
        self.shrink();
        (count, next)
    }

    /// Removes the leaves from index `taken.next` up to `end` out of the subtree in `slot`, and
    /// puts them into `taken.batch`, until it is full. Advances `taken.next` past the indexes
    /// looked at. `level` is the height of the subtree, and `base` its first index. Sets `slot` to
    /// `None` if no leaf is left.
    fn take_below(
        slot: &mut Option<Slot<T>>,
        level: u32,
        base: u64,
        end: u64,
        taken: &mut Taken<'_, T>,
    ) {
        let behind = base.saturating_add(capacity(level)).min(end);
        match slot {
            None => taken.next = behind,
            Some(Slot::Leaf(_)) => {
                let Some(place) = taken.batch.get_mut(taken.count) else {
                    return;
                };
                if let Some(Slot::Leaf(value)) = slot.take() {
                    *place = Some(value);
                    taken.count += 1;
                }
                taken.next = behind;
            }
            Some(Slot::Inner(inner)) if level == 1 => {
                for at in slot_of(taken.next, 1)..bounded(behind - base) {
                    if inner.slots[at].is_some() {
                        let Some(place) = taken.batch.get_mut(taken.count) else {
                            break;
                        };
                        if let Some(Slot::Leaf(value)) = inner.slots[at].take() {
                            *place = Some(value);
                        }
                        taken.count += 1;
                        inner.used -= 1;
                    }
                    taken.next = base + at as u64 + 1;
                }
                if inner.used == 0 {
                    *slot = None;
                    taken.next = taken.next.max(behind);
                }
            }
            Some(Slot::Inner(inner)) => {
                let span = capacity(level - 1);
                while taken.next < behind {
                    let at = slot_of(taken.next, level);
                    let child = &mut inner.slots[at];
                    let was_there = child.is_some();
                    let child_base = base + at as u64 * span;
                    Self::take_below(child, level - 1, child_base, end, taken);
                    if was_there && child.is_none() {
                        inner.used -= 1;
                    }
                    if taken.count == taken.batch.len() {
                        break;
                    }
                }
                if inner.used == 0 {
                    *slot = None;
                    taken.next = taken.next.max(behind);
                }
            }
        }
    }

    /// Removes levels that only serve index 0.
    fn shrink(&mut self) {
        if self.root.is_none() {
            self.height = 0;
        }
        while self.height > 0 {
            let Some(Slot::Inner(inner)) = &mut self.root else {
                return;
            };
            if inner.used != 1 || inner.slots[0].is_none() {
                return;
            }
            self.root = inner.slots[0].take();
            self.height -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::prelude::v1::*;
    use std::vec;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Take(u64, u64, usize),
        Next(u64),
        Each(u64, u64),
    }

    fn index() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..200_u64,
            4000..4200_u64,
            Just((1 << 51) - 1),
            (0..51_u32).prop_map(|b| 1 << b)
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => index().prop_map(Step::Insert),
            4 => (index(), index(), 0..5_usize).prop_map(|(a, b, n)| Step::Take(a, b, n)),
            1 => index().prop_map(Step::Next),
            1 => (index(), 0..300_u64).prop_map(|(a, length)| Step::Each(a, a + length)),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_an_ordered_map(steps in prop::collection::vec(step(), 0..200)) {
            let mut tree = RadixTree::new();
            let mut model = BTreeMap::new();
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(i) => prop_assert_eq!(tree.insert(i, n), Ok(model.insert(i, n))),
                    Step::Take(a, b, room) => {
                        let mut batch = vec![None; room];
                        let (count, next) = tree.take_batch(a, b, &mut batch);
                        let wanted: Vec<_> =
                            model.range(a..b.max(a)).take(room).map(|(&k, &v)| (k, v)).collect();
                        let values: Vec<_> = wanted.iter().map(|&(_, v)| Some(v)).collect();
                        prop_assert_eq!(&batch[..count], &values[..]);
                        for (k, _) in &wanted {
                            model.remove(k);
                        }
                        // The indexes that were skipped are empty.
                        prop_assert!(model.range(a..next.max(a)).next().is_none());
                    }
                    Step::Next(i) => prop_assert_eq!(
                        tree.next_from(i).map(|(k, &v)| (k, v)),
                        model.range(i..).next().map(|(&k, &v)| (k, v))
                    ),
                    Step::Each(a, b) => {
                        let mut found = Vec::new();
                        tree.for_each_in(a..b, |index, &value| found.push((index, value)));
                        let wanted: Vec<_> = model.range(a..b).map(|(&k, &v)| (k, v)).collect();
                        prop_assert_eq!(found, wanted);
                    }
                }
                prop_assert_eq!(tree.len(), model.len());
                for (&k, v) in &model {
                    prop_assert_eq!(tree.get(k), Some(v));
                }
            }
            let mut rest = vec![None; model.len() + 1];
            let (count, _) = tree.take_batch(0, u64::MAX, &mut rest);
            let values: Vec<_> = model.into_values().map(Some).collect();
            prop_assert_eq!(&rest[..count], &values[..]);
            prop_assert!(tree.is_empty() && tree.root.is_none() && tree.height == 0);
        }
    }

    #[test]
    fn an_index_beyond_any_file_is_refused() {
        let mut tree = RadixTree::new();
        assert_eq!(tree.insert(u64::MAX, ()), Err(NoMemory));
        assert_eq!(tree.get(u64::MAX), None);
        assert!(tree.is_empty());
    }
}
