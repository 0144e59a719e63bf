//! Grants that stay mapped between requests, where the front-end agrees to it.
//!
//! Pages that were missing for one request are mapped together, as a *run*: one mapping each would
//! cost the kernel a memory area each. A run goes as a whole: the least recently used first when
//! there is no room for others, those that nobody used for a while, and all under pressure. A run
//! that a request uses never goes.

use super::grants::{DomainId, GRANT_BYTES, GrantRef, Grants, Mapping};
use crate::time::Micros;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// How often it is looked whether some have to go.
pub const PURGE_INTERVAL: Duration = Duration::from_millis(100);
/// Of the limit, how much goes at once when there is no room.
const PURGE_PERCENT: u32 = 5;

/// Grants that were mapped together.
#[derive(Debug)]
pub struct Run {
    mapping: Mapping,
    grants: Vec<GrantRef>,
    last_used: Cell<Micros>,
}

/// A page that stays mapped while this lives.
#[derive(Clone, Debug)]
pub struct Held {
    run: Rc<Run>,
    page: usize,
}

impl Held {
    /// Where the page is.
    pub fn address(&self) -> *mut u8 {
        let base = self.run.mapping.base().as_ptr();
        base.wrapping_add(self.page * GRANT_BYTES)
    }
}

/// What is known of the limits at the time of a call.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Grants at most.
    pub grants: u32,
    /// Unused for so long is too long; zero is never.
    pub unused: Duration,
}

/// The grants of one front-end that are mapped.
#[derive(Debug)]
pub struct Persistent {
    grants: Rc<dyn Grants>,
    domain: DomainId,
    runs: Vec<Rc<Run>>,
    pages: BTreeMap<GrantRef, Held>,
    count: u32,
    /// A request found no room since the last purge.
    short: bool,
    next_purge: Micros,
}

impl Persistent {
    /// None yet.
    pub fn new(grants: Rc<dyn Grants>, domain: DomainId) -> Self {
        Self {
            grants,
            domain,
            runs: Vec::new(),
            pages: BTreeMap::new(),
            count: 0,
            short: false,
            next_purge: Micros::default(),
        }
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The pages of `wanted`, in order; those that are missing are mapped if there is room.
    /// `None` if not all of them can be had so: they can still be copied.
    pub fn pages(&mut self, wanted: &[GrantRef], most: u32, now: Micros) -> Option<Vec<Held>> {
        let mut missing: Vec<_> = wanted.to_vec();
        missing.retain(|grant| !self.pages.contains_key(grant));
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let count = u32::try_from(missing.len()).ok()?;
            if self.count.saturating_add(count) > most {
                self.short = true;
                return None;
            }
            self.map(missing, now)?;
        }
        let held = wanted.iter().map(|grant| self.pages.get(grant).cloned());
        let held: Option<Vec<_>> = held.collect();
        for page in held.iter().flatten() {
            page.run.last_used.set(now);
        }
        held
    }

    fn map(&mut self, missing: Vec<GrantRef>, now: Micros) -> Option<()> {
        let mapping = Mapping::new(&self.grants, self.domain, &missing, true).ok()?;
        let run = Rc::new(Run {
            mapping,
            grants: missing,
            last_used: Cell::new(now),
        });
        for (page, grant) in run.grants.iter().enumerate() {
            let run = run.clone();
            self.pages.insert(*grant, Held { run, page });
        }
        self.count += size(&run);
        self.runs.push(run);
        Some(())
    }

    /// Lets go what is over the limits. To be called after each batch of requests, and when
    /// [`Self::next_purge`] says.
    pub fn purge(&mut self, limits: Limits, now: Micros) {
        if now < self.next_purge {
            return;
        }
        self.next_purge = now + PURGE_INTERVAL;
        if !limits.unused.is_zero() {
            self.drop_unused(|run| run.last_used.get() + limits.unused <= now);
        }
        if self.count > limits.grants || std::mem::take(&mut self.short) {
            let over = self.count.saturating_sub(limits.grants);
            let mut going = over + (limits.grants * PURGE_PERCENT).div_ceil(100);
            self.runs.sort_by_key(|run| run.last_used.get());
            self.drop_unused(|run| {
                let goes = going > 0;
                going = going.saturating_sub(size(run));
                goes
            });
        }
    }

    /// When it may be that something has to go without any request.
    pub fn next_purge(&self, limits: Limits) -> Option<Micros> {
        if self.count > limits.grants {
            return Some(self.next_purge);
        }
        let oldest = self.runs.iter().map(|run| run.last_used.get()).min()?;
        (!limits.unused.is_zero()).then(|| self.next_purge.max(oldest + limits.unused))
    }

    /// Lets all go that no request uses.
    pub fn reclaim(&mut self) {
        self.drop_unused(|_| true);
    }

    fn drop_unused(&mut self, mut goes: impl FnMut(&Run) -> bool) {
        let pages = &mut self.pages;
        let count = &mut self.count;
        self.runs.retain(|run| {
            // One for the list, one for each page in the table; more are requests'.
            if Rc::strong_count(run) > run.grants.len() + 1 || !goes(run) {
                return true;
            }
            for grant in &run.grants {
                pages.remove(grant);
            }
            *count -= size(run);
            false
        });
    }
}

fn size(run: &Run) -> u32 {
    u32::try_from(run.grants.len()).unwrap_or(u32::MAX)
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::fake::{DOMAIN, FakeGrants};
    use super::*;

    #[test]
    fn who_finds_no_room_finds_some_after_the_next_purge_whatever_the_limit() {
        for most in [2, 50, 100] {
            let domain = FakeGrants::new(200);
            let mut persistent = Persistent::new(domain.clone(), DOMAIN);
            for grant in 0..most {
                let held = persistent.pages(&[GrantRef(grant)], most, Micros(grant.into()));
                assert!(held.is_some());
            }
            let late = Micros(1 << 30);
            assert!(persistent.pages(&[GrantRef(most)], most, late).is_none());
            let limits = Limits {
                grants: most,
                unused: Duration::ZERO,
            };
            persistent.purge(limits, late);
            assert!(persistent.pages(&[GrantRef(most)], most, late).is_some());
            // The least recently used one made room.
            assert!(!persistent.pages.contains_key(&GrantRef(0)));
        }
    }
}
