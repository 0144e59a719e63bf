//! A pairing heap of items that carry their own links: no allocation, so an insertion cannot fail.
//!
//! Insertion is O(1), taking the least or any item O(log n) amortised. Used for run queues (key:
//! virtual run time) and timer queues (key: deadline). It knows nothing of locks: whoever owns the
//! heap guards it, and with it the links of all items in it.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::{self, NonNull};

/// An item's place in a heap. Part of the item; guarded by what guards the heap.
pub struct Links<T> {
    inner: UnsafeCell<Inner<T>>,
}

struct Inner<T> {
    key: u64,
    queued: bool,
    /// First child.
    child: *const T,
    /// Next sibling.
    next: *const T,
    /// Previous sibling, or the parent of a first child; null for the root.
    previous: *const T,
}

// SAFETY: links are touched by the heap's methods alone, whose caller guards them.
unsafe impl<T> Send for Links<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Links<T> {}

impl<T> Links<T> {
    /// Links of an item that is in no heap.
    pub const fn new() -> Self {
        Self {
            inner: UnsafeCell::new(Inner {
                key: 0,
                queued: false,
                child: ptr::null(),
                next: ptr::null(),
                previous: ptr::null(),
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

/// Something that can be in a [`Heap`].
///
/// # Safety
/// `links` gives the same part of the item each time, and nothing else uses it.
pub unsafe trait Linked: Sized {
    /// The item's links.
    fn links(&self) -> &Links<Self>;
}

/// A heap of items, least key first. Holds pointers: see [`Heap::push`].
pub struct Heap<T: Linked> {
    root: *const T,
    len: usize,
}

// SAFETY: a heap is a set of pointers to items that may be shared between CPUs.
unsafe impl<T: Linked + Sync> Send for Heap<T> {}

impl<T: Linked> Heap<T> {
    /// An empty heap.
    pub const fn new() -> Self {
        Self {
            root: ptr::null(),
            len: 0,
        }
    }

    /// Number of items.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The links of an item of this heap, or of one about to enter it.
    ///
    /// # Safety
    /// `item` is valid; the result is used while the heap is guarded, one at a time for each item.
    unsafe fn of<'a>(item: *const T) -> &'a mut Inner<T> {
        // SAFETY: by the contract.
        unsafe { &mut *(*item).links().inner.get() }
    }

    /// The least key.
    pub fn least(&self) -> Option<u64> {
        if self.root.is_null() {
            return None;
        }
        // SAFETY: items of the heap are valid.
        Some(unsafe { Self::of(self.root) }.key)
    }

    /// Adds an item.
    ///
    /// # Safety
    /// The item is in no heap; it stays valid and where it is until it is taken out; its links are
    /// guarded by what guards this heap meanwhile.
    pub unsafe fn push(&mut self, item: NonNull<T>, key: u64) {
        let item = item.as_ptr().cast_const();
        // SAFETY: by the contract.
        let inner = unsafe { Self::of(item) };
        assert!(!inner.queued, "an item enters a heap twice");
        *inner = Inner {
            key,
            queued: true,
            child: ptr::null(),
            next: ptr::null(),
            previous: ptr::null(),
        };
        // SAFETY: the root is null or in the heap, the item is a tree of one.
        self.root = unsafe { Self::meld(self.root, item) };
        self.len += 1;
    }

    /// Takes the item with the least key out.
    pub fn pop(&mut self) -> Option<NonNull<T>> {
        let root = NonNull::new(self.root.cast_mut())?;
        // SAFETY: the root is in this heap.
        unsafe { self.remove(root) };
        Some(root)
    }

    /// Takes an item out; false when it is not in a heap.
    ///
    /// # Safety
    /// The item is valid, and in this heap or in none.
    pub unsafe fn remove(&mut self, item: NonNull<T>) -> bool {
        let item = item.as_ptr().cast_const();
        // SAFETY: by the contract; each reference made here is used before the next to that item.
        unsafe {
            if !Self::of(item).queued {
                return false;
            }
            let (child, next, previous) = {
                let inner = Self::of(item);
                (inner.child, inner.next, inner.previous)
            };
            let orphans = Self::meld_siblings(child);
            if previous.is_null() {
                self.root = orphans;
            } else {
                let left = Self::of(previous);
                if ptr::eq(left.child, item) {
                    left.child = next;
                } else {
                    left.next = next;
                }
                if !next.is_null() {
                    Self::of(next).previous = previous;
                }
                self.root = Self::meld(self.root, orphans);
            }
            let inner = Self::of(item);
            inner.queued = false;
            inner.child = ptr::null();
            inner.next = ptr::null();
            inner.previous = ptr::null();
        }
        self.len -= 1;
        true
    }

    /// Makes one tree of two; null is the empty tree.
    ///
    /// # Safety
    /// Both are roots of different trees of guarded items.
    unsafe fn meld(a: *const T, b: *const T) -> *const T {
        if a.is_null() {
            return b;
        }
        if b.is_null() {
            return a;
        }
        // SAFETY: by the contract; `a` and `b` differ.
        unsafe {
            let (top, below) = if Self::of(b).key < Self::of(a).key {
                (b, a)
            } else {
                (a, b)
            };
            let first = Self::of(top).child;
            {
                let inner = Self::of(below);
                inner.next = first;
                inner.previous = top;
            }
            if !first.is_null() {
                Self::of(first).previous = below;
            }
            let inner = Self::of(top);
            inner.child = below;
            inner.next = ptr::null();
            inner.previous = ptr::null();
            top
        }
    }

    /// Makes one tree of a list of siblings: in pairs from the left, then from the right.
    ///
    /// # Safety
    /// `first` is null or the first of a list of siblings that has no other owner.
    unsafe fn meld_siblings(first: *const T) -> *const T {
        let mut rest = first;
        // The melded pairs, last first, linked by `next`.
        let mut pairs: *const T = ptr::null();
        // SAFETY: the list is ours; each item is detached before it is melded.
        unsafe {
            while !rest.is_null() {
                let a = rest;
                let b = Self::of(a).next;
                rest = if b.is_null() {
                    ptr::null()
                } else {
                    Self::of(b).next
                };
                Self::detach(a);
                if !b.is_null() {
                    Self::detach(b);
                }
                let pair = Self::meld(a, b);
                Self::of(pair).next = pairs;
                pairs = pair;
            }
            let mut tree: *const T = ptr::null();
            while !pairs.is_null() {
                let pair = pairs;
                pairs = Self::of(pair).next;
                Self::detach(pair);
                tree = Self::meld(tree, pair);
            }
            tree
        }
    }

    /// # Safety
    /// `item` is valid and guarded.
    unsafe fn detach(item: *const T) {
        // SAFETY: by the contract.
        let inner = unsafe { Self::of(item) };
        inner.next = ptr::null();
        inner.previous = ptr::null();
    }
}

impl<T: Linked> Default for Heap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> fmt::Debug for Heap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
