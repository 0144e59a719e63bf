//! The memory of steps: the guest's own where the image can take it as it lies, pages of the pool
//! elsewhere; and what goes back to the system of those pages.

use super::active::Active;
use crate::arena::Arena;
use crate::image::Alignment;
use crate::io::Route;
use crate::knobs::{Knob, Knobs};
use crate::pool::{Batch, Counts, MAX_POOL_PAGES, PAGE_BYTES, Pool, SHRINK_INTERVAL, Squeeze};
use crate::request::{Door, HostSlice, Payload};
use crate::time::Micros;
use std::io;
use std::sync::Arc;

/// Pages that one step takes from the pool at most: 256 KiB.
pub const BOUNCE_PAGES: u32 = 64;
/// Slices of one step; `UIO_MAXIOV` of Linux.
const MAX_SLICES: usize = 1024;
/// Bytes of one step in place. A request may be as large as its disk, and where a step is a system call
/// nobody looks at anything else meanwhile.
const MAX_STEP_BYTES: u64 = 16 << 20;

/// The pool, and when it shrinks.
#[derive(Debug)]
pub(super) struct Memory {
    knobs: Arc<Knobs>,
    pool: Pool<Arena>,
    squeeze: Squeeze,
    /// When the pool is looked at next.
    next_trim: Micros,
}

impl Memory {
    /// Nothing of it is resident yet.
    ///
    /// # Errors
    /// If there is no address space left.
    pub(super) fn new(knobs: Arc<Knobs>) -> io::Result<Self> {
        Ok(Self {
            knobs,
            pool: Pool::new(Arena::new(MAX_POOL_PAGES)?, MAX_POOL_PAGES),
            squeeze: Squeeze::default(),
            next_trim: Micros(0),
        })
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn pool(&mut self) -> &mut Pool<Arena> {
        &mut self.pool
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// How the pool stands.
    pub(super) fn counts(&self) -> Counts {
        self.pool.counts()
    }

    /// Takes the pages of a request back.
    pub(super) fn put(&mut self, batch: Batch) {
        self.pool.put(batch);
    }

    /// Memory was tight at `event`. Whether that squeezes the pool.
    pub(super) fn squeeze(&mut self, event: Micros) -> bool {
        let duration = self.knobs.squeeze_duration();
        self.squeeze.begin(event, duration);
        !duration.is_zero()
    }

    /// See [`Engine::shrink`](super::Engine::shrink).
    pub(super) fn shrink(&mut self, now: Micros) {
        if self.knobs.squeeze_duration().is_zero() {
            self.squeeze = Squeeze::default();
        }
        if self.squeeze.begins() {
            self.pool.shrink(0);
        } else if now >= self.next_trim {
            self.pool.trim(self.limit(now));
        } else {
            return;
        }
        self.next_trim = now + SHRINK_INTERVAL;
    }

    /// When the pool wants to be looked at again, if it is then over its limit.
    pub(super) fn next_shrink(&self, now: Micros) -> Option<Micros> {
        (self.pool.counts().kept > self.limit(now)).then_some(self.next_trim)
    }

    /// Free pages that may be kept at `now`.
    fn limit(&self, now: Micros) -> u32 {
        if self.squeeze.active(now) {
            return 0;
        }
        self.knobs.get(Knob::MaxBufferPages)
    }

    /// Finds the memory for the next step: the guest's own where that works. `None` if it takes
    /// pages and none are free.
    pub(super) fn gather<D: Door>(
        &mut self,
        request: &mut Active<D>,
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
                // Of a step before, which did not fit.
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

/// The slices without their first `skip` bytes, as many as one step takes. Returns their bytes.
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

/// The first `bytes` of the pool's pages in `slices`.
///
/// # Safety
/// The slices are of pages that one request took from the pool; while what is returned is in use,
/// the request keeps them and no operation on them is under way.
pub(super) unsafe fn buffers<'a>(slices: &[HostSlice], bytes: u64) -> Vec<&'a mut [u8]> {
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    let pieces = slices.iter().map(|slice| {
        let len = slice.iov_len.min(left);
        left -= len;
        // SAFETY: mapped, and in nobody else's use, says the caller.
        unsafe { std::slice::from_raw_parts_mut(slice.iov_base.cast::<u8>(), len) }
    });
    pieces.filter(|piece| !piece.is_empty()).collect()
}

#[cfg(all(test, not(loom)))]
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
