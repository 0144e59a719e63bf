//! Which sets of files are in which others (epoll): no circles, not too deep, and not on more ways
//! than an event can take in bounded time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The most sets on one way from a file to who waits, as on Linux.
pub const MAX_LEVELS: usize = 5;
/// The most steps of all ways that one more set in another would be part of.
pub(crate) const MAX_STEPS: usize = 4096;

/// A set cannot be put into another: a circle, or too deep, or on too many ways.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TooDeep;

#[derive(Debug, Default)]
struct Relations {
    /// Sets that this one is in.
    above: Vec<u64>,
    /// Sets in this one.
    below: Vec<u64>,
}

/// Sets by their numbers, with others above or below them.
#[derive(Debug, Default)]
pub struct Nests(BTreeMap<u64, Relations>);

impl Nests {
    /// No set is in any other.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Puts one set into another.
    ///
    /// # Errors
    /// Nothing is changed then.
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

    /// Takes a set out of another, once.
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

    /// Forgets a set that is closed.
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

    /// How many sets are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `to` is below `from`.
    fn reaches(&self, from: u64, to: u64, steps: &mut usize) -> Result<bool, TooDeep> {
        for &inner in self.0.get(&from).map_or(&[][..], |r| &r.below) {
            *steps = steps.checked_sub(1).ok_or(TooDeep)?;
            if inner == to || self.reaches(inner, to, steps)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether all ways up from a set and from those below it are short and few.
    fn fits(&self, number: u64, steps: &mut usize) -> Result<(), TooDeep> {
        self.climb(number, 1, steps)?;
        for &inner in self.0.get(&number).map_or(&[][..], |r| &r.below) {
            *steps = steps.checked_sub(1).ok_or(TooDeep)?;
            self.fits(inner, steps)?;
        }
        Ok(())
    }

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
