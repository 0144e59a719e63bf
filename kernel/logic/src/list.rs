//! A list of items that carry their own links: no allocation, so an insertion cannot fail.
//!
//! Inserting and removing any item are O(1). Used for those who wait: on wait queues and on futexes. It knows
//! nothing of locks: whoever owns the list guards it, and with it the links of all items in it.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::{self, NonNull};

/// An item's place in a list. Part of the item; guarded by what guards the list.
pub struct Links<T> {
    inner: UnsafeCell<Inner<T>>,
}

struct Inner<T> {
    queued: bool,
    previous: *const T,
    next: *const T,
}

// SAFETY: links are touched by the list's methods alone, whose caller guards them.
unsafe impl<T> Send for Links<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Links<T> {}

impl<T> Links<T> {
    /// Links of an item that is in no list.
    pub const fn new() -> Self {
        Self {
            inner: UnsafeCell::new(Inner {
                queued: false,
                previous: ptr::null(),
                next: ptr::null(),
            }),
        }
    }
}

impl<T> Default for Links<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Links<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Links")
    }
}

/// Something that can be in a [`List`].
///
/// # Safety
/// `links` gives the same part of the item each time, and nothing else uses it.
pub unsafe trait Linked: Sized {
    /// The item's links.
    fn links(&self) -> &Links<Self>;
}

/// What [`List::sift`] does with an item.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sift {
    /// It stays.
    Keep,
    /// It leaves the list.
    Take,
    /// It stays, and so do all behind it.
    Stop,
}

/// A list of items. Holds pointers: see [`List::push_back`].
pub struct List<T: Linked> {
    first: *const T,
    last: *const T,
}

// SAFETY: a list is a set of pointers to items that may be shared between CPUs.
unsafe impl<T: Linked + Sync> Send for List<T> {}

impl<T: Linked> List<T> {
    /// An empty list.
    pub const fn new() -> Self {
        Self {
            first: ptr::null(),
            last: ptr::null(),
        }
    }

    /// Whether it has no item.
    pub const fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// The links of an item.
    ///
    /// # Safety
    /// The item is valid and guarded, and no other reference to its links is in use.
    unsafe fn of<'a>(item: *const T) -> &'a mut Inner<T> {
        // SAFETY: by the contract.
        unsafe { &mut *(*item).links().inner.get() }
    }

    /// Puts an item behind all others.
    ///
    /// # Safety
    /// The item is in no list. It stays valid and where it is until it has left the list.
    pub unsafe fn push_back(&mut self, item: NonNull<T>) {
        let item = item.as_ptr().cast_const();
        // SAFETY: by the contract; items of the list are valid.
        unsafe {
            *Self::of(item) = Inner {
                queued: true,
                previous: self.last,
                next: ptr::null(),
            };
            if self.last.is_null() {
                self.first = item;
            } else {
                Self::of(self.last).next = item;
            }
        }
        self.last = item;
    }

    /// Puts an item before all others.
    ///
    /// # Safety
    /// As for [`Self::push_back`].
    pub unsafe fn push_front(&mut self, item: NonNull<T>) {
        let item = item.as_ptr().cast_const();
        // SAFETY: by the contract; items of the list are valid.
        unsafe {
            *Self::of(item) = Inner {
                queued: true,
                previous: ptr::null(),
                next: self.first,
            };
            if self.first.is_null() {
                self.last = item;
            } else {
                Self::of(self.first).previous = item;
            }
        }
        self.first = item;
    }

    /// Whether an item is in a list.
    ///
    /// # Safety
    /// The item is valid, and guarded by what guards the list that it may be in.
    pub unsafe fn contains(&self, item: NonNull<T>) -> bool {
        // SAFETY: by the contract.
        unsafe { Self::of(item.as_ptr()) }.queued
    }

    /// Takes an item out; says whether it was there.
    ///
    /// # Safety
    /// The item is valid, and in this list or in none.
    pub unsafe fn remove(&mut self, item: NonNull<T>) -> bool {
        // SAFETY: by the contract; so are its neighbours, which are in the list.
        unsafe {
            let links = Self::of(item.as_ptr());
            if !links.queued {
                return false;
            }
            let (previous, next) = (links.previous, links.next);
            links.queued = false;
            if previous.is_null() {
                self.first = next;
            } else {
                Self::of(previous).next = next;
            }
            if next.is_null() {
                self.last = previous;
            } else {
                Self::of(next).previous = previous;
            }
        }
        true
    }

    /// Goes through the items from the front and takes out those that `choose` names. `taken` gets each when it is in no
    /// list any more.
    pub fn sift(&mut self, mut choose: impl FnMut(&T) -> Sift, mut taken: impl FnMut(NonNull<T>)) {
        let mut at = self.first;
        while let Some(item) = NonNull::new(at.cast_mut()) {
            // SAFETY: items of the list are valid until they leave it.
            unsafe {
                at = Self::of(item.as_ptr()).next;
                match choose(item.as_ref()) {
                    Sift::Keep => {}
                    Sift::Take => {
                        self.remove(item);
                        taken(item);
                    }
                    Sift::Stop => return,
                }
            }
        }
    }

    /// Moves all items of `other` behind those of this list.
    pub fn append(&mut self, other: &mut Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            self.first = other.first;
        } else {
            // SAFETY: the ends of lists are valid items.
            unsafe {
                Self::of(self.last).next = other.first;
                Self::of(other.first).previous = self.last;
            }
        }
        self.last = other.last;
        *other = Self::new();
    }
}

impl<T: Linked> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").finish_non_exhaustive()
    }
}
