//! Finds memory for steps: the guest's own if direct I/O can use it, else pages of the pool. Also
//! decides when the pool returns pages to the system.

use super::active::Active;
use crate::arena::Arena;
use crate::image::Alignment;
use crate::io::Route;
use crate::knobs::{Knob, Knobs};
use crate::pool::{Batch, Counts, MAX_POOL_PAGES, PAGE_BYTES, Pool, SHRINK_INTERVAL, Squeeze};
use crate::request::{HostSlice, Payload, Transport};
use crate::time::Micros;
use std::io;
use std::sync::Arc;

/// Maximum number of pages of the pool that one step of a request uses: 256 KiB.
pub const BOUNCE_PAGES: u32 = 64;
/// Maximum number of slices in one step (`UIO_MAXIOV` of Linux).
const MAX_SLICES: usize = 1024;
/// Maximum number of bytes of one step in place. A request may be as large as its disk, and a step
/// by a system call keeps the thread from everything else.
const MAX_STEP_BYTES: u64 = 16 << 20;

/// The pool of an instance, with its settings and the times at which it shrinks.
#[derive(Debug)]
pub(super) struct Memory {
    knobs: Arc<Knobs>,
    pool: Pool<Arena>,
    squeeze: Squeeze,
    /// Time of the next [`Pool::trim`], which runs only while a squeeze lasts.
    next_trim: Micros,
}

impl Memory {
    /// Makes an empty pool with the settings `knobs`. No page is resident yet.
    ///
    /// # Errors
    /// Fails if the address space cannot be mapped.
    pub(super) fn new(knobs: Arc<Knobs>) -> io::Result<Self> {
        Ok(Self {
            knobs,
            pool: Pool::new(Arena::new(MAX_POOL_PAGES)?, MAX_POOL_PAGES),
            squeeze: Squeeze::default(),
            next_trim: Micros(0),
        })
    }

    /// Returns the pool of pages, for tests.
    #[cfg(test)]
    pub(super) fn pool(&mut self) -> &mut Pool<Arena> {
        &mut self.pool
    }

    /// Returns the settings of the pool, for tests.
    #[cfg(test)]
    pub(super) fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Returns the numbers of free pages, of pages in use, and of pages returned to the system so
    /// far.
    pub(super) fn counts(&self) -> Counts {
        self.pool.counts()
    }

    /// Returns the pages of a request to the pool, as free pages.
    pub(super) fn put(&mut self, batch: Batch) {
        self.pool.put(batch);
    }

    /// Starts a squeeze for a pressure event at `event`, and returns `true`: each [`Self::shrink`]
    /// frees all free pages for `buffer_squeeze_duration_ms`, as in `xen-blkback`, and the first
    /// one does so even later. Then, until the end of the hold, it frees unneeded pages. Returns
    /// `false`, and does nothing, if squeezing is off.
    pub(super) fn squeeze(&mut self, event: Micros) -> bool {
        let Some(times) = self.knobs.squeeze_times() else {
            return false;
        };
        self.squeeze.begin(event, times);
        true
    }

    /// Returns free pages to the system, as [`Engine::shrink`](super::Engine::shrink) describes.
    /// Ends a squeeze if squeezing was switched off.
    pub(super) fn shrink(&mut self, now: Micros) {
        if self.knobs.squeeze_times().is_none() {
            self.squeeze = Squeeze::default();
        }
        if self.squeeze.take_event() {
            self.pool.shrink(0);
            self.next_trim = now + SHRINK_INTERVAL;
            return;
        }
        self.pool.shrink(self.limit(now));
        if self.squeeze.active(now) && now >= self.next_trim {
            self.pool.trim();
            self.next_trim = now + SHRINK_INTERVAL;
        }
    }

    /// Returns the time at which [`Self::shrink`] should be called next. Returns `None` if no page
    /// will have to be freed unless there are requests or settings change.
    pub(super) fn next_shrink(&self, now: Micros) -> Option<Micros> {
        let free = self.pool.counts().free;
        if free > self.limit(now) {
            return Some(now);
        }
        (free > 0 && self.squeeze.active(now)).then_some(self.next_trim)
    }

    /// Returns the maximum number of free pages to keep at `now`.
    pub(super) fn limit(&self, now: Micros) -> u32 {
        if self.squeeze.returns_every_batch(now) {
            return 0;
        }
        self.knobs.get(Knob::MaxBufferPages)
    }

    /// Finds the memory for the next step of `request`, which begins at byte `offset` of the image,
    /// and stores it in `request.slices`: the guest's own memory if possible, else pages of the
    /// pool. `direct` is the alignment of direct I/O, or `None` without direct I/O. Returns the
    /// descriptor to use. Returns `None` if the step needs pages of the pool and too few are free;
    /// the request then has no pages.
    pub(super) fn gather<T: Transport>(
        &mut self,
        request: &mut Active<T>,
        offset: u64,
        direct: Option<Alignment>,
    ) -> Option<Route> {
        let left = request.payload.bytes() - request.done;
        let aligned =
            direct.filter(|a| offset.is_multiple_of(a.offset) && left.is_multiple_of(a.offset));
        let route = if aligned.is_some() {
            Route::Direct
        } else {
            Route::Cached
        };
        if let Some(slices) = request.payload.in_place() {
            let fits = aligned.is_none_or(|a| {
                slices.iter().all(|s| {
                    (s.iov_base as usize as u64).is_multiple_of(a.memory)
                        && (s.iov_len as u64).is_multiple_of(a.offset)
                })
            });
            if fits {
                request.slices.clear();
                request.step_bytes = rest_of(slices, request.done, &mut request.slices);
                // Pages of an earlier step that did not fit.
                if let Some(batch) = request.batch.take() {
                    self.pool.put(batch);
                }
                return Some(route);
            }
        }
        let step = left.min(u64::from(BOUNCE_PAGES) * PAGE_BYTES as u64);
        let pages = u32::try_from(step.div_ceil(PAGE_BYTES as u64)).unwrap_or(BOUNCE_PAGES);
        let batch = match request.batch.take() {
            Some(batch) if batch.pages().len() == pages as usize => batch,
            other => {
                if let Some(batch) = other {
                    self.pool.put(batch);
                }
                self.pool.take(pages)?
            }
        };
        request.slices.clear();
        let mut gathered = 0;
        for page in batch.pages() {
            let address = self.pool.backing().address(*page).as_ptr();
            let bytes = (step - gathered).min(PAGE_BYTES as u64);
            let iov_len = usize::try_from(bytes).unwrap_or(PAGE_BYTES);
            match request.slices.last_mut() {
                Some(last) if last.iov_base as usize + last.iov_len == address as usize => {
                    last.iov_len += iov_len;
                }
                _ => request.slices.push(HostSlice {
                    iov_base: address.cast(),
                    iov_len,
                }),
            }
            gathered += bytes;
        }
        request.step_bytes = step;
        request.batch = Some(batch);
        Some(route)
    }
}

/// Appends to `rest` the slices without their first `skip` bytes, up to the limits of one step.
/// Returns the number of bytes appended.
fn rest_of(slices: &[HostSlice], mut skip: u64, rest: &mut Vec<HostSlice>) -> u64 {
    let mut bytes = 0;
    for slice in slices {
        if rest.len() == MAX_SLICES || bytes == MAX_STEP_BYTES {
            break;
        }
        let len = slice.iov_len as u64;
        if skip >= len {
            skip -= len;
            continue;
        }
        let cut = usize::try_from(skip).unwrap_or(0);
        skip = 0;
        let room = usize::try_from(MAX_STEP_BYTES - bytes).unwrap_or(usize::MAX);
        let iov_len = (slice.iov_len - cut).min(room);
        let iov_base = slice.iov_base.cast::<u8>().wrapping_add(cut).cast();
        rest.push(HostSlice { iov_base, iov_len });
        bytes += iov_len as u64;
    }
    bytes
}

/// Returns the first `bytes` bytes of `slices`, which are pages of the pool, as one buffer for each
/// slice. Returns fewer bytes if the slices are shorter.
///
/// # Safety
/// The slices must be pages that one request took from the pool. While the result is in use, the
/// request must keep them, and no operation on them may be under way.
pub(super) unsafe fn buffers<'a>(slices: &[HostSlice], bytes: u64) -> Vec<&'a mut [u8]> {
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    let pieces = slices.iter().map(|slice| {
        let len = slice.iov_len.min(left);
        left -= len;
        // SAFETY: the caller guarantees that the pages are mapped and in no other use.
        unsafe { std::slice::from_raw_parts_mut(slice.iov_base.cast::<u8>(), len) }
    });
    pieces.filter(|piece| !piece.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_in_place_has_a_bound() {
        let mut rest = Vec::new();
        let base = 4096 as *mut libc::c_void;
        let slice = |iov_len| HostSlice {
            iov_base: base,
            iov_len,
        };
        let slices = [slice(512), slice(1 << 32), slice(512)];
        assert_eq!(rest_of(&slices, 0, &mut rest), MAX_STEP_BYTES);
        assert_eq!(rest.len(), 2);
        rest.clear();
        assert_eq!(rest_of(&slices, (1 << 32) + 512, &mut rest), 512);
    }
}
