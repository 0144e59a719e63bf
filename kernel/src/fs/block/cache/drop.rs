//! Drops pages of the cache.

use super::{Cache, LOOKS, OFTEN};
use core::ops::Range;
use machine::memory::stats;

/// The most pages that are dropped each time that the lock is held.
const DROP_BATCH: usize = 32;

/// The pages that reclaim may drop.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(in super::super) enum Choice {
    /// Clean pages without other references that were used fewer than `OFTEN` times since they were
    /// last examined. Examining a page sets its use count to 0.
    Unused,
    /// Clean pages without other references.
    Unheld,
    /// All clean pages. A task that holds a reference to a dropped page keeps a frame that no
    /// longer belongs to the disk.
    Any,
}

impl Cache {
    /// Drops up to `most` clean pages of `range` that `choice` selects. Examines at most `looks`
    /// pages. Returns the number of dropped pages, and the number of the page to continue at.
    pub(in super::super) fn drop_clean(
        &self,
        range: Range<u64>,
        choice: Choice,
        most: u64,
        mut looks: u64,
    ) -> (u64, u64) {
        let (mut at, mut dropped) = (range.start, 0);
        while dropped < most && looks > 0 {
            let mut batch = [const { None }; DROP_BATCH];
            let mut taken = 0;
            let mut state = self.state.lock();
            let mut over = false;
            let turn = looks.saturating_sub(u64::from(LOOKS));
            while taken < DROP_BATCH && dropped + (taken as u64) < most && looks > turn {
                let Some((index, _)) = state.pages.next_from(at).filter(|(i, _)| *i < range.end)
                else {
                    over = true;
                    break;
                };
                at = index + 1;
                looks -= 1;
                let Some(page) = state.pages.get_mut(index) else {
                    break;
                };
                let unheld = page.frame.references() == 1;
                let wanted = page.is_clean()
                    && match choice {
                        Choice::Unused => unheld && page.uses < OFTEN,
                        Choice::Unheld => unheld,
                        Choice::Any => true,
                    };
                if choice == Choice::Unused {
                    page.uses = 0;
                }
                if wanted {
                    state
                        .pages
                        .take_batch(index, index + 1, &mut batch[taken..=taken]);
                    taken += 1;
                }
            }
            drop(state);
            drop(batch);
            stats::count_disk_pages(-(taken as i64));
            dropped += taken as u64;
            if over {
                return (dropped, range.end);
            }
        }
        (dropped, at)
    }

    /// Drops up to `most` clean pages that `choice` selects, for a task that needs memory. Each
    /// call continues where the last one stopped, and goes on at page 0 after the last page.
    /// Examines at most `looks` pages before that point and at most `looks` pages behind it.
    /// Returns the number of dropped pages.
    pub(in super::super) fn reclaim(&self, choice: Choice, most: u64, looks: u64) -> u64 {
        let hand = self.state.lock().hand;
        let (mut dropped, mut at) = self.drop_clean(hand..u64::MAX, choice, most, looks);
        if at == u64::MAX && dropped < most {
            let (more, next) = self.drop_clean(0..hand, choice, most - dropped, looks);
            dropped += more;
            at = next;
        }
        self.state.lock().hand = if at == u64::MAX { 0 } else { at };
        dropped
    }

    /// Writes the pages of `range` to the disk, drops them and unmaps them, so that the next reads
    /// come from the disk.
    pub(in super::super) fn forget(&'static self, range: Range<u64>) {
        if self.state.lock().pages.is_empty() {
            return;
        }
        self.write_back(range.clone());
        self.drop_clean(range.clone(), Choice::Any, u64::MAX, u64::MAX);
        self.unmap(&range);
    }

    /// Drops the pages of `range` without writing them, because the disk is about to have other
    /// content there. Waits for writes that are under way.
    pub(in super::super) fn discard(&'static self, range: Range<u64>) {
        let mut at = range.start;
        while let Some(next) = self.clean(at..range.end) {
            at = next;
        }
        self.forget(range);
    }

    /// Clears the dirty marks in a range, for [`LOOKS`] pages at most. Returns the page to continue
    /// at, or `None` if the range is done.
    fn clean(&self, range: Range<u64>) -> Option<u64> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let end = range.end.min(state.dirty_within.end);
        let mut at = range.start.max(state.dirty_within.start);
        let mut cleaned = 0;
        let mut more = true;
        for _ in 0..LOOKS {
            let next = state.pages.next_from(at).map(|(index, _)| index);
            let Some(index) = next.filter(|&index| index < end) else {
                more = false;
                break;
            };
            at = index + 1;
            if let Some(page) = state.pages.get_mut(index)
                && page.dirty
            {
                page.dirty = false;
                cleaned += 1;
            }
        }
        state.dirty -= cleaned;
        drop(guard);
        stats::count_dirty_pages(-(cleaned.cast_signed()));
        more.then_some(at)
    }
}
