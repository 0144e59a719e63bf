//! Which GiB free blocks are taken from.
//!
//! What moves comes from the highest GiB that has any, what does not from the lowest: the two meet
//! only when memory is full, and what lies between can become whole, as a page of 1 GiB. Within a
//! GiB the first tree comes first.

use crate::{
    Mobility,
    zone::{Wanted, Zone},
};

/// The trees of a zone that may have free blocks, in the order in which they are searched.
pub(crate) struct FreeTrees<'a, 'm> {
    zone: &'a Zone<'m>,
    wanted: Wanted,
    /// The next is sought from here on.
    from: usize,
    /// And up to here.
    end: usize,
    /// Whether, and from where downwards, other GiBs follow.
    below: Option<usize>,
}

impl<'m> Zone<'m> {
    /// The trees that may have free blocks of a class, for a mobility.
    pub(crate) fn free_trees(&self, wanted: Wanted, mobility: Mobility) -> FreeTrees<'_, 'm> {
        let trees = self.trees();
        let (end, below) = match mobility {
            Mobility::Movable => (0, Some(trees)),
            Mobility::Unmovable | Mobility::Reclaimable => (trees, None),
        };
        FreeTrees {
            zone: self,
            wanted,
            from: 0,
            end,
            below,
        }
    }

    /// The classes of free blocks, in the order in which a mobility takes them: first what the host
    /// has memory for, but what does not move goes to the lower GiB.
    pub(crate) fn free_classes(&self, mobility: Mobility) -> [Wanted; 2] {
        let order = [Wanted::Touched, Wanted::Untouched];
        if mobility == Mobility::Movable {
            return order;
        }
        let first = |wanted: Wanted| Some(self.giant_of(self.arrays.map.next(wanted.kind(), 0)?));
        let [touched, untouched] = order.map(first);
        match untouched {
            Some(untouched) if touched.is_some_and(|touched| untouched < touched) => {
                [Wanted::Untouched, Wanted::Touched]
            }
            _ => order,
        }
    }
}

impl Iterator for FreeTrees<'_, '_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let (map, kind) = (&self.zone.arrays.map, self.wanted.kind());
        // Bounded: each turn but the last begins with a GiB below the one before.
        loop {
            if self.from < self.end
                && let Some(tree) = map.next(kind, self.from)
                && tree < self.end
            {
                self.from = tree + 1;
                return Some(tree);
            }
            let last = map.last(kind, self.below?)?;
            let first = self.zone.giant_start(last);
            (self.from, self.end, self.below) = (first, last + 1, Some(first));
        }
    }
}
