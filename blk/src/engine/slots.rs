//! The requests under way, each in a slot by whose number the kernel knows it.

use super::active::Active;
use crate::request::{Door, HostSlice};

/// Room for slices that is kept for the next requests: so many, for so many slices each.
const MAX_SPARES: usize = 64;
const MAX_SPARE_SLICES: usize = 64;

#[derive(Debug)]
pub(super) struct Slots<D: Door> {
    /// Boxed, so that a request stays where it is while the kernel works on it.
    active: Vec<Option<Box<Active<D>>>>,
    free: Vec<usize>,
    /// Room for slices, of requests that are done.
    spare_slices: Vec<Vec<HostSlice>>,
}

impl<D: Door> Slots<D> {
    pub(super) fn new() -> Self {
        Self {
            active: Vec::new(),
            free: Vec::new(),
            spare_slices: Vec::new(),
        }
    }

    /// How many are in use, those included whose request is taken out for the moment.
    pub(super) fn in_use(&self) -> usize {
        self.active.len() - self.free.len()
    }

    /// Room for the slices of a new request.
    pub(super) fn room(&mut self) -> Vec<HostSlice> {
        self.spare_slices.pop().unwrap_or_default()
    }

    /// Puts a new request into a slot.
    pub(super) fn add(&mut self, request: Active<D>) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() - 1
        });
        self.active[slot] = Some(Box::new(request));
        slot
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Active<D>> {
        self.active.get(slot)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Active<D>> {
        self.active.get_mut(slot)?.as_deref_mut()
    }

    /// Takes the request out for a while; the slot stays its own.
    pub(super) fn take(&mut self, slot: usize) -> Option<Box<Active<D>>> {
        self.active.get_mut(slot)?.take()
    }

    /// Puts it back.
    pub(super) fn put(&mut self, slot: usize, request: Box<Active<D>>) {
        self.active[slot] = Some(request);
    }

    /// Gives up a slot whose request was taken out, and keeps the room for `slices`.
    pub(super) fn free(&mut self, slot: usize, mut slices: Vec<HostSlice>) {
        self.active[slot] = None;
        self.free.push(slot);
        if slices.capacity() <= MAX_SPARE_SLICES && self.spare_slices.len() < MAX_SPARES {
            slices.clear();
            self.spare_slices.push(slices);
        }
    }
}
