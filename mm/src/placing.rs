//! Chooses the GiB that free pageblocks are taken from.
//!
//! Movable memory comes from the highest GiB that has free pageblocks, other memory from the
//! lowest. The two meet only when memory is full, and the GiB regions between them can become free
//! as a whole, for pages of 1 GiB. Within a GiB the lowest tree (32 pageblocks) comes first.
//!
//! Pageblocks that the host has memory for (touched) come before the others. For movable memory
//! that holds in the whole zone. For other memory it holds within a GiB: otherwise a host that
//! takes free pageblocks of the lowest GiB as soon as they are freed would push unmovable memory
//! into all others.

use core::ops::Range;

use crate::{
    Mobility,
    ids::{Id, TreeId},
    shuffle::Turn,
    zone::{Wanted, Zone},
};

/// A part of a zone to search for free pageblocks: a range of trees and one class, touched or
/// untouched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FreePart {
    /// The class of pageblocks to search for.
    pub(crate) wanted: Wanted,
    /// The trees of the zone.
    trees: Range<TreeId>,
    /// Whether the search starts at the highest GiB of `trees` and goes downwards.
    downwards: bool,
}

/// An iterator over the parts of a zone ([`FreePart`]) in the order in which a search for one
/// mobility visits them.
pub(crate) struct FreeParts<'a, 'm> {
    zone: &'a Zone<'m>,
    mobility: Mobility,
    /// The tree from which the next GiB is searched for.
    from: TreeId,
    /// The untouched part that follows the touched part of the same trees.
    second: Option<FreePart>,
}

/// An iterator over the trees of one [`FreePart`] that may have free pageblocks, in search order.
pub(crate) struct FreeTrees<'a, 'm> {
    zone: &'a Zone<'m>,
    wanted: Wanted,
    /// Where the search within a GiB starts.
    turn: Turn,
    /// The trees of the present GiB that are still to be searched.
    present: Range<TreeId>,
    /// The trees of the present GiB that follow these, as the search did not start at the first.
    rest: Range<TreeId>,
    /// If the search goes downwards, the GiB regions below this tree follow.
    below: Option<TreeId>,
}

impl<'m> Zone<'m> {
    /// Returns the parts of the zone to search for free pageblocks of `mobility`, the best first.
    /// Each part is a range of trees (64 MiB) and one class, touched or untouched.
    pub(crate) fn free_parts(&self, mobility: Mobility) -> FreeParts<'_, 'm> {
        FreeParts {
            zone: self,
            mobility,
            from: TreeId::FIRST,
            second: None,
        }
    }

    /// Returns the trees (64 MiB) of `part` that may have free pageblocks, in search order. Within
    /// a GiB `turn` says which comes first. The search hints may be wrong, so a returned tree may
    /// have none.
    pub(crate) fn free_trees(&self, part: &FreePart, turn: Turn) -> FreeTrees<'_, 'm> {
        let mut trees = FreeTrees {
            zone: self,
            wanted: part.wanted,
            turn,
            present: Range::default(),
            rest: Range::default(),
            below: part.downwards.then_some(part.trees.end),
        };
        if !part.downwards {
            trees.enter(part.trees.clone());
        }
        trees
    }
}

impl FreePart {
    /// Returns whether `tree` lies in this part.
    pub(crate) fn has(&self, tree: TreeId) -> bool {
        self.trees.contains(&tree)
    }
}

impl Iterator for FreeParts<'_, '_> {
    type Item = FreePart;

    fn next(&mut self) -> Option<FreePart> {
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        let end = self.zone.arrays.summaries.end();
        let (trees, downwards) = match self.mobility {
            Mobility::Movable => (self.from..end, true),
            Mobility::Unmovable | Mobility::Reclaimable => {
                let of = |wanted: Wanted| self.zone.arrays.map.next(wanted.kind(), self.from);
                let found = [Wanted::Touched, Wanted::Untouched].map(of);
                let first = found.into_iter().flatten().min()?;
                (self.zone.gib_trees(first), false)
            }
        };
        if trees.is_empty() {
            return None;
        }
        // Bounded: each pair of parts begins behind the pair before.
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

impl FreeTrees<'_, '_> {
    /// Starts to search these trees of a GiB.
    fn enter(&mut self, trees: Range<TreeId>) {
        let first = self.turn.first_tree(&trees);
        self.present = first..trees.end;
        self.rest = trees.start..first;
    }
}

impl Iterator for FreeTrees<'_, '_> {
    type Item = TreeId;

    fn next(&mut self) -> Option<TreeId> {
        let (map, kind) = (&self.zone.arrays.map, self.wanted.kind());
        // Bounded: each turn but the last begins with a GiB below the one before, or with its rest.
        loop {
            if !self.present.is_empty()
                && let Some(tree) = map.next(kind, self.present.start)
                && tree < self.present.end
            {
                self.present.start = tree.next();
                return Some(tree);
            }
            self.present = core::mem::take(&mut self.rest);
            if self.present.is_empty() {
                let last = map.last(kind, self.below?)?;
                let first = self.zone.gib_trees(last).start;
                self.below = Some(first);
                self.enter(first..last.next());
            }
        }
    }
}
