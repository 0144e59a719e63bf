//! A list of items that contain their own links. It needs no allocation, so an insertion cannot
//! fail.
//!
//! Inserting and removing any item are O(1). Wait queues and futexes keep their waiters in such
//! lists. The list takes no locks: its owner guards it, together with the links of all items in it.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::{self, NonNull};

/// An item's place in a list. It is part of the item, and the lock of the list guards it.
pub struct Links<T> {
    inner: UnsafeCell<Inner<T>>,
}

struct Inner<T> {
    queued: bool,
    previous: *const T,
    next: *const T,
}

// SAFETY: only the list's methods access the links, and their callers hold the lock of the list.
unsafe impl<T> Send for Links<T> {}
// SAFETY: only the list's methods access the links, and their callers hold the lock of the list.
unsafe impl<T> Sync for Links<T> {}

impl<T> Links<T> {
    /// Returns the links of an item that is in no list.
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

/// An item that can be in a [`List`].
///
/// # Safety
/// `links` must return the same part of the item each time, and nothing else may use that part.
pub unsafe trait Linked: Sized {
    /// Returns the item's links.
    fn links(&self) -> &Links<Self>;
}

/// The answer of the closure `choose` of [`List::sift`] about an item.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sift {
    /// The item stays.
    Keep,
    /// The item leaves the list.
    Take,
    /// The item and all items after it stay.
    Stop,
}

/// A list of items. It holds pointers to them: see [`List::push_back`].
pub struct List<T: Linked> {
    first: *const T,
    last: *const T,
}

// SAFETY: a list consists of pointers to items, which are `Sync` and so may be shared between CPUs.
unsafe impl<T: Linked + Sync> Send for List<T> {}

impl<T: Linked> List<T> {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self {
            first: ptr::null(),
            last: ptr::null(),
        }
    }

    /// Returns whether the list is empty.
    pub const fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Returns the links of `item`.
    ///
    /// # Safety
    /// `item` must be valid and guarded, and no other reference to its links may be in use.
    unsafe fn of<'a>(item: *const T) -> &'a mut Inner<T> {
        // SAFETY: the caller guarantees that the item is valid and its links are not referenced
        // elsewhere.
        unsafe { &mut *(*item).links().inner.get() }
    }

    /// Adds `item` at the end.
    ///
    /// # Safety
    /// The item must be in no list. It must stay valid and must not move until it has left the
    /// list.
    pub unsafe fn push_back(&mut self, item: NonNull<T>) {
        let item = item.as_ptr().cast_const();
        // SAFETY: the caller guarantees that the new item is valid; those in the list stay valid
        // until they leave it.
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

    /// Adds `item` at the front.
    ///
    /// # Safety
    /// The item must be in no list. It must stay valid and must not move until it has left the
    /// list.
    pub unsafe fn push_front(&mut self, item: NonNull<T>) {
        let item = item.as_ptr().cast_const();
        // SAFETY: the caller guarantees that the new item is valid; those in the list stay valid
        // until they leave it.
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

    /// Returns whether `item` is in any list.
    ///
    /// # Safety
    /// The item must be valid, and the lock of the list that it may be in must be held.
    pub unsafe fn contains(&self, item: NonNull<T>) -> bool {
        // SAFETY: the caller guarantees that the item is valid and guarded.
        unsafe { Self::of(item.as_ptr()) }.queued
    }

    /// Removes `item` and returns `true`. Returns `false` if it was in no list.
    ///
    /// # Safety
    /// The item must be valid, and in this list or in none.
    pub unsafe fn remove(&mut self, item: NonNull<T>) -> bool {
        // SAFETY: the caller guarantees that the item is valid; its neighbours are in the list and
        // so valid.
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

    /// Visits the items from the front and calls `choose` with each. Removes the items for which
    /// `choose` returns [`Sift::Take`], and calls `taken` with each of them after it has left the
    /// list. [`Sift::Stop`] ends the visit.
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

    /// Moves all items of `other` to the end of this list.
    pub fn append(&mut self, other: &mut Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            self.first = other.first;
        } else {
            // SAFETY: the ends of non-empty lists are items of these lists and so valid.
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
