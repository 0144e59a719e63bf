//! Which GiB free blocks are taken from.
//!
//! What moves comes from the highest GiB that has any, what does not from the lowest: the two meet
//! only when memory is full, and what lies between can become whole, as a page of 1 GiB. Within a
//! GiB the first tree comes first.
//!
//! Blocks that the host has memory for come before the others. For what moves that holds in the
//! whole zone, for what does not within a GiB: a host that takes the free blocks of the lowest GiB
//! as soon as they are freed would else push it into all others.

use core::ops::Range;

use crate::{
    Mobility,
    zone::{Wanted, Zone},
};

/// The free blocks of some trees, all of one class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FreePart {
    /// The class.
    pub(crate) wanted: Wanted,
    /// The trees.
    trees: Range<usize>,
    /// Whether the highest GiB of them comes first.
    downwards: bool,
}

/// The parts of a zone's free blocks, in the order in which they are searched for a mobility.
pub(crate) struct FreeParts<'a, 'm> {
    zone: &'a Zone<'m>,
    mobility: Mobility,
    /// Where the next GiB is sought.
    from: usize,
    /// The second part of a pair.
    second: Option<FreePart>,
}

/// The trees of a part that may have free blocks, in the order in which they are searched.
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
    /// Where free blocks are searched for a mobility.
    pub(crate) fn free_parts(&self, mobility: Mobility) -> FreeParts<'_, 'm> {
        FreeParts {
            zone: self,
            mobility,
            from: 0,
            second: None,
        }
    }

    /// The trees of a part that may have free blocks.
    pub(crate) fn free_trees(&self, part: &FreePart) -> FreeTrees<'_, 'm> {
        let Range { start, end } = part.trees;
        let (from, end, below) = if part.downwards {
            (0, 0, Some(end))
        } else {
            (start, end, None)
        };
        FreeTrees {
            zone: self,
            wanted: part.wanted,
            from,
            end,
            below,
        }
    }
}

impl FreePart {
    /// Whether a tree is one of its.
    pub(crate) fn has(&self, tree: usize) -> bool {
        self.trees.contains(&tree)
    }
}

impl Iterator for FreeParts<'_, '_> {
    type Item = FreePart;

    fn next(&mut self) -> Option<FreePart> {
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        let all = self.zone.trees();
        let (trees, downwards) = match self.mobility {
            Mobility::Movable => (self.from..all, true),
            Mobility::Unmovable | Mobility::Reclaimable => {
                let of = |wanted: Wanted| self.zone.arrays.map.next(wanted.kind(), self.from);
                let found = [Wanted::Touched, Wanted::Untouched].map(of);
                let first = found.into_iter().flatten().min()?;
                (self.zone.giant_trees(first), false)
            }
        };
        if trees.is_empty() {
            return None;
        }
        // Bounded: each pair begins behind the one before.
        self.from = trees.end;
        let part = |wanted: Wanted| FreePart {
            wanted,
            trees: trees.clone(),
            downwards,
        };
        self.second = Some(part(Wanted::Untouched));
        Some(part(Wanted::Touched))
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
            let first = self.zone.giant_trees(last).start;
            (self.from, self.end, self.below) = (first, last + 1, Some(first));
        }
    }
}
