//! Writes dirty pages to the disk.

use super::{Cache, LOOKS, PAGE_SECTORS, run};
use crate::drivers::disk::{Data, Finish, IoError, Operation, Owner, Request};
use core::ops::Range;
use core::sync::atomic::Ordering;
use machine::memory::stats;
use machine::sched;

/// The result of a search for dirty pages.
pub(in super::super) enum Run {
    /// A write was started. The search continues at this page.
    Started(u64),
    /// This page is dirty, and an earlier write of it is under way.
    Busy(u64),
    /// No page before this one is dirty. The search continues here.
    Looked(u64),
    /// The rest of the range has no dirty page.
    None,
}

impl Cache {
    /// Begins to write the first dirty pages of `range`, a run of adjacent pages that fits in one
    /// request. Waits only while the disk's queue is full. Returns what the search found.
    pub(in super::super) fn write_run(&'static self, range: Range<u64>) -> Run {
        let mut data = Data::new();
        let first = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let end = range.end.min(state.dirty_within.end);
            let mut at = range.start.max(state.dirty_within.start);
            let mut looks = LOOKS;
            let first = loop {
                if state.dirty == 0 {
                    return Run::None;
                }
                looks -= 1;
                if looks == 0 {
                    return Run::Looked(at);
                }
                match state.pages.next_from(at) {
                    Some((index, page)) if index < end && page.dirty => {
                        if page.writing {
                            return Run::Busy(index);
                        }
                        break index;
                    }
                    Some((index, _)) if index < end => at = index + 1,
                    _ => return Run::None,
                }
            };
            let mut next = first;
            while data.pages() < self.request_pages()
                && next < end
                && let Some(page) = state.pages.get_mut(next)
                && page.dirty
                && !page.writing
            {
                page.dirty = false;
                page.writing = true;
                data.push(page.frame.clone());
                next += 1;
            }
            state.dirty -= data.pages() as u64;
            state.writing += data.pages() as u64;
            if state.dirty == 0 {
                state.dirty_within = 0..0;
            } else if range.start <= state.dirty_within.start {
                // No page before the ones that were taken is dirty.
                state.dirty_within.start = next;
            }
            first
        };
        let pages = data.pages();
        stats::count_dirty_pages(-(pages as i64));
        stats::count_writing_pages(pages as i64);
        // Relaxed: the counter orders no other access.
        self.handed.fetch_add(pages as u64, Ordering::Relaxed);
        // A program that stores to the pages from now on faults, and the fault marks them as dirty.
        if let Some(writers) = self.writers.get() {
            writers.mappings().invalidate(&**writers, run(first, pages));
        }
        let request = Request {
            operation: Operation::Write {
                sector: first * PAGE_SECTORS,
            },
            owner: Owner::Finish(self),
            data,
        };
        if first >= self.pages() {
            // The disk has shrunk.
            self.done(request.operation, request.data, Err(IoError::Failed));
        } else {
            let mut request = request;
            request.data.cut(self.bytes_in(first, pages));
            self.disk.submit(request);
        }
        Run::Started(first + pages as u64)
    }

    /// Writes the dirty pages of `range` and waits until the disk has them. Failed writes are only
    /// counted.
    pub(in super::super) fn write_back(&'static self, range: Range<u64>) {
        let mut at = range.start;
        // Each page once: pages behind `at` that become dirty again are not looked at.
        while at < range.end {
            match self.write_run(at..range.end) {
                Run::Started(next) | Run::Looked(next) => at = next,
                Run::Busy(index) => {
                    self.wait_written(index);
                    at = index;
                }
                Run::None => break,
            }
        }
        let mut at = range.start;
        while let Some(next) = self.look_for_writing(at..range.end) {
            self.wait_written(next);
            at = next + 1;
        }
    }

    fn wait_written(&self, index: u64) {
        let _waits = sched::pressure::io_wait();
        self.changed
            .wait_uninterruptible(|| !self.is(index, |page| page.writing));
    }

    /// Returns the first page of the range that is being written. If none of its first [`LOOKS`]
    /// pages in memory is, returns the last of these. Returns `None` if no page of the disk is
    /// being written, or if the range has fewer pages and none of them is.
    fn look_for_writing(&self, range: Range<u64>) -> Option<u64> {
        let state = self.state.lock();
        if state.writing == 0 {
            return None;
        }
        let mut last = None;
        let mut at = range.start;
        for _ in 0..LOOKS {
            let (index, page) = state.pages.next_from(at).filter(|(i, _)| *i < range.end)?;
            last = Some(index);
            if page.writing {
                break;
            }
            at = index + 1;
        }
        last
    }
}
