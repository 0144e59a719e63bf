//! The nesting of sets of files (epoll): no cycles, a limited depth, and a limited number of paths,
//! so that an event is handled in bounded time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The most sets on one path from a file to a waiter, as on Linux.
pub const MAX_LEVELS: usize = 5;
/// The most steps from set to set that the checks for one more nesting may take, over all paths.
pub(crate) const MAX_STEPS: usize = 4096;

/// The error if an epoll set cannot be put into another one. There would be a cycle, too deep a
/// nesting, or too many paths.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TooDeep;

/// The relations of one epoll set to other ones.
#[derive(Debug, Default)]
struct Relations {
    /// The numbers of the sets that contain this one.
    above: Vec<u64>,
    /// The numbers of the sets in this one.
    below: Vec<u64>,
}

/// The epoll sets that contain other epoll sets or are in other ones, by their numbers.
#[derive(Debug, Default)]
pub struct Nests(BTreeMap<u64, Relations>);

impl Nests {
    /// Returns a value in which no epoll set is nested.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Puts the epoll set `inner` into the epoll set `outer`.
    ///
    /// # Errors
    /// [`TooDeep`] if that would make a cycle, too deep a nesting, or too many paths. No relation
    /// has changed then.
    pub fn enter(&mut self, outer: u64, inner: u64) -> Result<(), TooDeep> {
        let mut steps = MAX_STEPS;
        if outer == inner || self.reaches(inner, outer, &mut steps)? {
            return Err(TooDeep);
        }
        self.0.entry(outer).or_default().below.push(inner);
        self.0.entry(inner).or_default().above.push(outer);
        let fits = self.fits(inner, &mut steps);
        if fits.is_err() {
            self.leave(outer, inner);
        }
        fits
    }

    /// Takes the epoll set `inner` out of the epoll set `outer`. If `inner` was put into `outer`
    /// several times, undoes only one of them.
    pub fn leave(&mut self, outer: u64, inner: u64) {
        let take = |list: &mut Vec<u64>, number: u64| {
            if let Some(at) = list.iter().position(|&other| other == number) {
                list.swap_remove(at);
            }
        };
        if let Some(relations) = self.0.get_mut(&outer) {
            take(&mut relations.below, inner);
        }
        if let Some(relations) = self.0.get_mut(&inner) {
            take(&mut relations.above, outer);
        }
        for number in [outer, inner] {
            if self
                .0
                .get(&number)
                .is_some_and(|r| r.above.is_empty() && r.below.is_empty())
            {
                self.0.remove(&number);
            }
        }
    }

    /// Removes all relations of the epoll set `number`, which was closed.
    pub fn forget(&mut self, number: u64) {
        let Some(relations) = self.0.remove(&number) else {
            return;
        };
        for outer in relations.above {
            self.leave(outer, number);
        }
        for inner in relations.below {
            self.leave(number, inner);
        }
    }

    /// Returns the number of epoll sets that contain other epoll sets or are in other ones.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no epoll set contains another one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the epoll set `to` is in the set `from`, directly or in a set that `from`
    /// contains. Each step uses up one of `steps`. Fails with [`TooDeep`] if `steps` are used up.
    fn reaches(&self, from: u64, to: u64, steps: &mut usize) -> Result<bool, TooDeep> {
        for &inner in self.0.get(&from).map_or(&[][..], |r| &r.below) {
            *steps = steps.checked_sub(1).ok_or(TooDeep)?;
            if inner == to || self.reaches(inner, to, steps)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks all paths up from the set `number`, and from the sets that it contains, directly or
    /// indirectly. Each step uses up one of `steps`. Fails with [`TooDeep`] if a path has more than
    /// [`MAX_LEVELS`] sets or `steps` are used up.
    fn fits(&self, number: u64, steps: &mut usize) -> Result<(), TooDeep> {
        self.climb(number, 1, steps)?;
        for &inner in self.0.get(&number).map_or(&[][..], |r| &r.below) {
            *steps = steps.checked_sub(1).ok_or(TooDeep)?;
            self.fits(inner, steps)?;
        }
        Ok(())
    }

    /// Checks all paths up from the set `number`, which is at `level` of its path. Each step uses
    /// up one of `steps`. Fails with [`TooDeep`] if a path has more than [`MAX_LEVELS`] sets or
    /// `steps` are used up.
    pub(crate) fn climb(
        &self,
        number: u64,
        level: usize,
        steps: &mut usize,
    ) -> Result<(), TooDeep> {
        if level > MAX_LEVELS {
            return Err(TooDeep);
        }
        for &outer in self.0.get(&number).map_or(&[][..], |r| &r.above) {
            *steps = steps.checked_sub(1).ok_or(TooDeep)?;
            self.climb(outer, level + 1, steps)?;
        }
        Ok(())
    }
}
