//! Grants that stay mapped between requests, if the front-end agrees.
//!
//! Pages that one request needs and that are not mapped yet are mapped together, as *batches* of up
//! to [`BATCH_GRANTS`], because each mapping costs the kernel a memory area. A batch is unmapped as
//! a whole, so a page that is used often keeps only few others mapped. The least recently used
//! batches are unmapped if there is no space for others, unused ones after a time, and all under
//! memory pressure. A batch that a request uses stays mapped.

use super::grants::{DomainId, GRANT_BYTES, GrantRef, Grants, Mapping};
use crate::time::Micros;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Minimum time between two checks of mapped grants against the limits.
pub const PURGE_INTERVAL: Duration = Duration::from_millis(100);
/// The most grants that are mapped, and unmapped, together.
pub const BATCH_GRANTS: usize = 8;
/// Percentage of the limit that is unmapped at once if a request found no space.
const PURGE_PERCENT: u32 = 5;

/// Granted pages that were mapped together and are unmapped together.
#[derive(Debug)]
pub struct GrantBatch {
    mapping: Mapping,
    grants: Vec<GrantRef>,
    last_used: Cell<Micros>,
}

/// A granted page with its mapping. The page stays mapped while this value lives.
#[derive(Clone, Debug)]
pub struct MappedPage {
    batch: Rc<GrantBatch>,
    page: usize,
}

impl MappedPage {
    /// Returns the address of the page in this process, valid while this value lives.
    pub fn address(&self) -> *mut u8 {
        let base = self.batch.mapping.base().as_ptr();
        base.wrapping_add(self.page * GRANT_BYTES)
    }
}

/// The limits on the mapped grants of one front-end, read from the settings for each call.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Maximum number of mapped grants.
    pub grants: u32,
    /// Time after which unused grants are unmapped. Zero means never.
    pub unused: Duration,
}

/// The grants of one front-end that stay mapped between requests.
#[derive(Debug)]
pub struct Persistent {
    grants: Rc<dyn Grants>,
    domain: DomainId,
    batches: Vec<Rc<GrantBatch>>,
    pages: BTreeMap<GrantRef, MappedPage>,
    /// Number of mapped grants.
    count: u32,
    /// Whether a request has found too little space since the last purge.
    short: bool,
    next_purge: Micros,
}

impl Persistent {
    /// Makes an empty list for the front-end in `domain`. `grants` is the interface to the
    /// hypervisor.
    pub fn new(grants: Rc<dyn Grants>, domain: DomainId) -> Self {
        Self {
            grants,
            domain,
            batches: Vec::new(),
            pages: BTreeMap::new(),
            count: 0,
            short: false,
            next_purge: Micros::default(),
        }
    }

    /// Returns the number of grants that are mapped now.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the pages `wanted`, mapped, in order, and notes their use at `now`. Returns `None`
    /// if a mapping fails, or if more than `most` grants would then be mapped; the caller can still
    /// copy. In the second case nothing was mapped, and the next [`Self::purge`] makes space.
    pub fn pages(
        &mut self,
        wanted: &[GrantRef],
        most: u32,
        now: Micros,
    ) -> Option<Vec<MappedPage>> {
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
            for batch in missing.chunks(BATCH_GRANTS) {
                self.map(batch, now)?;
            }
        }
        let held = wanted.iter().map(|grant| self.pages.get(grant).cloned());
        let held: Option<Vec<_>> = held.collect();
        for page in held.iter().flatten() {
            page.batch.last_used.set(now);
        }
        held
    }

    /// Maps `missing` as one batch. Returns `None` if that fails.
    fn map(&mut self, missing: &[GrantRef], now: Micros) -> Option<()> {
        let mapping = Mapping::new(&self.grants, self.domain, missing, true).ok()?;
        let batch = Rc::new(GrantBatch {
            mapping,
            grants: missing.to_vec(),
            last_used: Cell::new(now),
        });
        for (page, grant) in batch.grants.iter().enumerate() {
            let batch = batch.clone();
            self.pages.insert(*grant, MappedPage { batch, page });
        }
        self.count += size(&batch);
        self.batches.push(batch);
        Some(())
    }

    /// Unmaps batches that no request uses: those unused for longer than the limit, and the least
    /// recently used ones if there are too many grants or a request has found no space. Does
    /// nothing within [`PURGE_INTERVAL`] after the last check. Call this after each batch of
    /// requests and at the time [`Self::next_purge`].
    pub fn purge(&mut self, limits: Limits, now: Micros) {
        if now < self.next_purge {
            return;
        }
        self.next_purge = now + PURGE_INTERVAL;
        if !limits.unused.is_zero() {
            self.drop_unused(|batch| batch.last_used.get() + limits.unused <= now);
        }
        if self.count > limits.grants || std::mem::take(&mut self.short) {
            let over = self.count.saturating_sub(limits.grants);
            let mut going = over + (limits.grants * PURGE_PERCENT).div_ceil(100);
            self.batches.sort_by_key(|batch| batch.last_used.get());
            self.drop_unused(|batch| {
                let goes = going > 0;
                going = going.saturating_sub(size(batch));
                goes
            });
        }
    }

    /// Returns the time at which [`Self::purge`] must be called even if no request comes. Returns
    /// `None` if no grant is mapped, or if the grants are within `limits` and never expire.
    pub fn next_purge(&self, limits: Limits) -> Option<Micros> {
        if self.count > limits.grants {
            return Some(self.next_purge);
        }
        let oldest = self
            .batches
            .iter()
            .map(|batch| batch.last_used.get())
            .min()?;
        (!limits.unused.is_zero()).then(|| self.next_purge.max(oldest + limits.unused))
    }

    /// Unmaps all batches that no request uses, at once.
    pub fn reclaim(&mut self) {
        self.drop_unused(|_| true);
    }

    /// Unmaps the batches that no request uses and for which `goes` returns `true`.
    fn drop_unused(&mut self, mut goes: impl FnMut(&GrantBatch) -> bool) {
        let pages = &mut self.pages;
        let count = &mut self.count;
        self.batches.retain(|batch| {
            // There is one reference in the list and one for each page in the table. Further ones
            // belong to requests.
            if Rc::strong_count(batch) > batch.grants.len() + 1 || !goes(batch) {
                return true;
            }
            for grant in &batch.grants {
                pages.remove(grant);
            }
            *count -= size(batch);
            false
        });
    }
}

/// Returns the number of pages of a batch.
fn size(batch: &GrantBatch) -> u32 {
    u32::try_from(batch.grants.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
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
            // The least recently used batch was unmapped.
            assert!(!persistent.pages.contains_key(&GrantRef(0)));
        }
    }

    /// Pages of one request stay mapped all together or not at all, so it may find too little space
    /// before the limit is reached.
    #[test]
    fn who_finds_too_little_room_below_the_limit_finds_it_after_purges() {
        let (most, wanted) = (10, [20, 21, 22, 23].map(GrantRef));
        let mut persistent = Persistent::new(FakeGrants::new(200), DOMAIN);
        for grant in 0..8 {
            let held = persistent.pages(&[GrantRef(grant)], most, Micros(0));
            assert!(held.is_some());
        }
        let limits = Limits {
            grants: most,
            unused: Duration::ZERO,
        };
        let mut now = Micros(1 << 30);
        for left in [7, 6] {
            assert!(persistent.pages(&wanted, most, now).is_none());
            persistent.purge(limits, now);
            assert_eq!(persistent.count, left);
            now = now + PURGE_INTERVAL;
        }
        assert!(persistent.pages(&wanted, most, now).is_some());
        persistent.purge(limits, now);
        assert_eq!(persistent.count, most, "at the limit nothing goes");
    }

    #[test]
    fn a_page_that_is_used_often_keeps_few_others() {
        let batch = u32::try_from(BATCH_GRANTS).unwrap();
        let mut persistent = Persistent::new(FakeGrants::new(200), DOMAIN);
        let wanted: Vec<_> = (0..64).map(GrantRef).collect();
        assert!(persistent.pages(&wanted, 100, Micros(0)).is_some());
        let limits = Limits {
            grants: 100,
            unused: Duration::from_secs(60),
        };
        let later = Micros(0) + Duration::from_secs(59);
        let held = persistent.pages(&[GrantRef(20)], 100, later);
        persistent.purge(limits, later);
        assert_eq!(persistent.count, 64);
        persistent.purge(limits, later + Duration::from_secs(2));
        assert_eq!(persistent.count, batch);
        persistent.reclaim();
        assert_eq!(persistent.count, batch, "a request uses one");
        drop(held);
        persistent.reclaim();
        assert_eq!(persistent.count, 0);
    }

    #[test]
    fn at_its_limit_nothing_goes_until_a_request_finds_no_room() {
        let (most, late) = (100, Micros(1 << 30));
        let mut persistent = Persistent::new(FakeGrants::new(200), DOMAIN);
        for grant in 0..most {
            assert!(
                persistent
                    .pages(&[GrantRef(grant)], most, Micros(0))
                    .is_some()
            );
        }
        let limits = |grants| Limits {
            grants,
            unused: Duration::ZERO,
        };
        persistent.purge(limits(most), late);
        assert_eq!(persistent.count, most);
        // Over the limit: what is over goes, and 5 % of the limit.
        let later = late + PURGE_INTERVAL;
        persistent.purge(limits(most - 20), later);
        assert_eq!(persistent.count, most - 20 - 4);
    }
}
