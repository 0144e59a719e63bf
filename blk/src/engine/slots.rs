//! The table of requests under way. Each has a slot, whose index is the token of its operations.

use super::active::Active;
use crate::request::{HostSlice, Transport};

/// Maximum number of empty slice buffers kept for later requests, and the maximum capacity of each.
const MAX_SPARES: usize = 64;
const MAX_SPARE_SLICES: usize = 64;

/// The table of requests under way. A slot index is the token of the request's operations.
#[derive(Debug)]
pub(super) struct Slots<T: Transport> {
    /// Boxed, so that a request does not move while the kernel uses its slices.
    active: Vec<Option<Box<Active<T>>>>,
    free: Vec<usize>,
    /// Empty slice buffers of completed requests.
    spare_slices: Vec<Vec<HostSlice>>,
}

impl<T: Transport> Slots<T> {
    /// Makes an empty table of requests.
    pub(super) fn new() -> Self {
        Self {
            active: Vec::new(),
            free: Vec::new(),
            spare_slices: Vec::new(),
        }
    }

    /// Returns the number of slots in use, including those whose request is taken out at the
    /// moment.
    pub(super) fn in_use(&self) -> usize {
        self.active.len() - self.free.len()
    }

    /// Returns an empty slice buffer for a new request, one of an earlier request if possible.
    pub(super) fn room(&mut self) -> Vec<HostSlice> {
        self.spare_slices.pop().unwrap_or_default()
    }

    /// Stores a new request in a free slot, or in a new one. Returns the slot's index.
    pub(super) fn add(&mut self, request: Active<T>) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() - 1
        });
        self.active[slot] = Some(Box::new(request));
        slot
    }

    /// Returns the request in `slot`, or `None` if the slot is empty or its request is taken out.
    pub(super) fn get(&self, slot: usize) -> Option<&Active<T>> {
        self.active.get(slot)?.as_deref()
    }

    /// Returns the request in `slot`, or `None` if the slot is empty or its request is taken out.
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Active<T>> {
        self.active.get_mut(slot)?.as_deref_mut()
    }

    /// Takes the request out of `slot`, which stays reserved for it until [`Self::free`]. Returns
    /// `None` if the slot has no request.
    pub(super) fn take(&mut self, slot: usize) -> Option<Box<Active<T>>> {
        self.active.get_mut(slot)?.take()
    }

    /// Puts the request that [`Self::take`] returned back into `slot`. Panics if there is no such
    /// slot.
    pub(super) fn put(&mut self, slot: usize, request: Box<Active<T>>) {
        self.active[slot] = Some(request);
    }

    /// Frees `slot`, whose request was taken out, for another request. Keeps the buffer `slices`
    /// for later requests if it is small and few are kept. Panics if there is no such slot.
    pub(super) fn free(&mut self, slot: usize, mut slices: Vec<HostSlice>) {
        self.active[slot] = None;
        self.free.push(slot);
        if slices.capacity() <= MAX_SPARE_SLICES && self.spare_slices.len() < MAX_SPARES {
            slices.clear();
            self.spare_slices.push(slices);
        }
    }
}
