//! Grants that stay mapped between requests, if the front-end agrees.
//!
//! Pages that one request needs and that are not mapped yet are mapped together, as a *run*,
//! because each mapping costs the kernel a memory area. A run is unmapped as a whole. The least
//! recently used runs are unmapped if there is no space for others, unused ones after a time, and
//! all under memory pressure. A run that a request uses stays mapped.

use super::grants::{DomainId, GRANT_BYTES, GrantRef, Grants, Mapping};
use crate::time::Micros;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Interval at which mapped grants are checked against the limits.
pub const PURGE_INTERVAL: Duration = Duration::from_millis(100);
/// Percentage of the limit that is unmapped at once if a request found no space.
const PURGE_PERCENT: u32 = 5;

/// Granted pages that were mapped together.
#[derive(Debug)]
pub struct Run {
    mapping: Mapping,
    grants: Vec<GrantRef>,
    last_used: Cell<Micros>,
}

/// A granted page that stays mapped while this value lives.
#[derive(Clone, Debug)]
pub struct Held {
    run: Rc<Run>,
    page: usize,
}

impl Held {
    /// Returns the address of the page.
    pub fn address(&self) -> *mut u8 {
        let base = self.run.mapping.base().as_ptr();
        base.wrapping_add(self.page * GRANT_BYTES)
    }
}

/// The limits on mapped grants, read from the settings for each call.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Maximum number of mapped grants.
    pub grants: u32,
    /// Time after which unused grants are unmapped. Zero means never.
    pub unused: Duration,
}

/// The mapped grants of one front-end.
#[derive(Debug)]
pub struct Persistent {
    grants: Rc<dyn Grants>,
    domain: DomainId,
    runs: Vec<Rc<Run>>,
    pages: BTreeMap<GrantRef, Held>,
    /// Number of mapped grants.
    count: u32,
    /// Whether a request has found too little space since the last purge.
    short: bool,
    next_purge: Micros,
}

impl Persistent {
    /// Makes an empty list for the front-end in `domain`.
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

    /// Returns the number of mapped grants.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the pages `wanted`, in order. Those that are not mapped yet are mapped in one run.
    /// Returns `None` if more than `most` grants would then be mapped, or mapping fails; the caller
    /// can still copy.
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

    /// Maps `missing` as one run. Returns `None` if that fails.
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

    /// Unmaps runs that exceed the limits and that no request uses. Does nothing before
    /// [`PURGE_INTERVAL`] has passed. Call this after each batch of requests and at the time
    /// [`Self::next_purge`].
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

    /// Returns the time at which [`Self::purge`] must be called even if no request comes. Returns
    /// `None` if that is not needed.
    pub fn next_purge(&self, limits: Limits) -> Option<Micros> {
        if self.count > limits.grants {
            return Some(self.next_purge);
        }
        let oldest = self.runs.iter().map(|run| run.last_used.get()).min()?;
        (!limits.unused.is_zero()).then(|| self.next_purge.max(oldest + limits.unused))
    }

    /// Unmaps all runs that no request uses.
    pub fn reclaim(&mut self) {
        self.drop_unused(|_| true);
    }

    /// Unmaps the runs that no request uses and for which `goes` returns `true`.
    fn drop_unused(&mut self, mut goes: impl FnMut(&Run) -> bool) {
        let pages = &mut self.pages;
        let count = &mut self.count;
        self.runs.retain(|run| {
            // There is one reference in the list and one for each page in the table. Further ones
            // belong to requests.
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

/// Returns the number of pages of a run.
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
            // The least recently used run was unmapped.
            assert!(!persistent.pages.contains_key(&GrantRef(0)));
        }
    }
}
