//! A pairing heap of items that contain their own links. It needs no allocation, so an insertion
//! cannot fail.
//!
//! Insertion is O(1); removing the least item or any other is O(log n) amortised. Run queues (key:
//! virtual run time) and timer queues (key: deadline) are such heaps. The heap takes no locks: its
//! owner guards it, together with the links of all items in it.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::{self, NonNull};

/// An item's place in a heap. It is part of the item, and the lock of the heap guards it.
pub struct Links<T> {
    inner: UnsafeCell<Inner<T>>,
}

/// The key of an item and its links in a heap.
struct Inner<T> {
    key: u64,
    queued: bool,
    /// The first child of the item; null if there is none.
    child: *const T,
    /// The next sibling of the item; null if there is none.
    next: *const T,
    /// The previous sibling of the item, or the parent of a first child. Null for the root.
    previous: *const T,
}

// SAFETY: only the heap's methods access the links, and their callers hold the lock of the heap.
unsafe impl<T> Send for Links<T> {}
// SAFETY: only the heap's methods access the links, and their callers hold the lock of the heap.
unsafe impl<T> Sync for Links<T> {}

impl<T> Links<T> {
    /// Returns the links of an item that is in no heap.
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

/// An item that can be in a [`Heap`].
///
/// # Safety
/// `links` must return the same part of the item each time, and nothing else may use that part.
pub unsafe trait Linked: Sized {
    /// Returns the item's links.
    fn links(&self) -> &Links<Self>;
}

/// A heap of items, least key first. It holds pointers to them: see [`Heap::push`].
pub struct Heap<T: Linked> {
    root: *const T,
    len: usize,
}

// SAFETY: a heap consists of pointers to items, which are `Sync` and so may be shared between CPUs.
unsafe impl<T: Linked + Sync> Send for Heap<T> {}

impl<T: Linked> Heap<T> {
    /// Returns an empty heap.
    pub const fn new() -> Self {
        Self {
            root: ptr::null(),
            len: 0,
        }
    }

    /// Returns the number of items in the heap.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the heap is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the links of an item that is in this heap or about to enter it.
    ///
    /// # Safety
    /// `item` must be valid. The result may be used only while the heap is guarded, and only one
    /// result at a time for each item.
    unsafe fn of<'a>(item: *const T) -> &'a mut Inner<T> {
        // SAFETY: the caller guarantees that the item is valid and its links are not referenced
        // elsewhere.
        unsafe { &mut *(*item).links().inner.get() }
    }

    /// Returns the least key, or `None` if the heap is empty.
    pub fn least(&self) -> Option<u64> {
        if self.root.is_null() {
            return None;
        }
        // SAFETY: the root is an item of the heap, and those are valid.
        Some(unsafe { Self::of(self.root) }.key)
    }

    /// Adds `item` with the key `key`.
    ///
    /// # Safety
    /// The item must be in no heap. It must stay valid and must not move until it has left the
    /// heap. Until then the lock of this heap must guard its links.
    pub unsafe fn push(&mut self, item: NonNull<T>, key: u64) {
        let item = item.as_ptr().cast_const();
        // SAFETY: the caller guarantees that the item is valid and guarded.
        let inner = unsafe { Self::of(item) };
        assert!(!inner.queued, "an item enters a heap twice");
        *inner = Inner {
            key,
            queued: true,
            child: ptr::null(),
            next: ptr::null(),
            previous: ptr::null(),
        };
        // SAFETY: the root is null or in the heap, and the item is a tree of one.
        self.root = unsafe { Self::meld(self.root, item) };
        self.len += 1;
    }

    /// Removes and returns the item with the least key, or returns `None` if the heap is empty.
    pub fn pop(&mut self) -> Option<NonNull<T>> {
        let root = NonNull::new(self.root.cast_mut())?;
        // SAFETY: the root is in this heap.
        unsafe { self.remove(root) };
        Some(root)
    }

    /// Removes `item` and returns `true`. Returns `false` if it was in no heap.
    ///
    /// # Safety
    /// The item must be valid, and in this heap or in none.
    pub unsafe fn remove(&mut self, item: NonNull<T>) -> bool {
        let item = item.as_ptr().cast_const();
        // SAFETY: the caller guarantees that the item is valid, and its neighbours are in the heap.
        // Each reference made here is last used before the next one to the same item.
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

    /// Melds the trees with the roots `a` and `b` into one, and returns its root. Null is the empty
    /// tree.
    ///
    /// # Safety
    /// Both must be null or roots of different trees of guarded items.
    unsafe fn meld(a: *const T, b: *const T) -> *const T {
        if a.is_null() {
            return b;
        }
        if b.is_null() {
            return a;
        }
        // SAFETY: the caller guarantees that `a` and `b` are valid and differ.
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

    /// Melds the list of siblings that begins with `first` into one tree: in pairs from the left,
    /// then from the right. Returns its root, or null if `first` is null.
    ///
    /// # Safety
    /// `first` must be null or the first of a list of siblings that has no other owner.
    unsafe fn meld_siblings(first: *const T) -> *const T {
        let mut rest = first;
        // The melded pairs, last first, linked by `next`.
        let mut pairs: *const T = ptr::null();
        // SAFETY: this function owns the list, and detaches each item before it melds it.
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

    /// Clears the links to an item's siblings.
    ///
    /// # Safety
    /// `item` must be valid and guarded.
    unsafe fn detach(item: *const T) {
        // SAFETY: the caller guarantees that `item` is valid and guarded.
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
