//! The free objects of one size in one page. Pure logic, tested on the host.
//!
//! The state fits one word, which the page's descriptor holds. `free` heads a list through the free
//! objects themselves; each link takes two bytes, the number of the next object plus one. `fresh`
//! is the number of the first object that was never allocated; it and all later objects are in no
//! list. `used` counts the allocated objects. In a new page no object was ever allocated, so none
//! of it has to be written.

/// The size in bytes of the objects of each class. The lowest set bit of a size is also the
/// alignment of its objects.
pub const SIZES: [usize; 15] = [
    8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1344, 2048,
];

/// The size in bytes of the largest objects.
pub const MAX_SIZE: usize = SIZES[SIZES.len() - 1];

/// Size of a slab in bytes.
pub const SLAB_BYTES: usize = 4096;

/// Every size is a multiple of this, so objects have at least this alignment.
const UNIT: usize = 8;

/// For each number of units, the first class whose objects have at least this size.
const CLASSES: [u8; MAX_SIZE / UNIT + 1] = {
    let mut classes = [0; MAX_SIZE / UNIT + 1];
    let (mut units, mut class) = (0, 0);
    while units < classes.len() {
        if SIZES[class as usize] < units * UNIT {
            class += 1;
        }
        classes[units] = class;
        units += 1;
    }
    classes
};

/// For each class, the size of its objects and their number in a slab.
const SHAPES: [(u16, u16); SIZES.len()] = {
    let mut shapes = [(0, 0); SIZES.len()];
    let mut class = 0;
    while class < SIZES.len() {
        assert!(SIZES[class].is_multiple_of(UNIT));
        #[expect(clippy::cast_possible_truncation, reason = "at most 2048 and 512")]
        let shape = (SIZES[class] as u16, (SLAB_BYTES / SIZES[class]) as u16);
        shapes[class] = shape;
        class += 1;
    }
    shapes
};

/// Returns the class for objects of `size` bytes with the alignment `align`, or `None` if no class
/// fits.
#[inline]
pub fn class_of(size: usize, align: usize) -> Option<usize> {
    let first = usize::from(*CLASSES.get(size.div_ceil(UNIT))?);
    if align <= UNIT {
        return Some(first);
    }
    (first..SIZES.len()).find(|&class| SIZES[class] & (align - 1) == 0)
}

/// Returns the number of objects of `class` in a slab.
#[inline]
pub const fn capacity(class: usize) -> u16 {
    SHAPES[class].1
}

/// Returns the number of the object of `class` that begins `offset` bytes into its slab. Returns
/// `None` if no object begins there. Returns [`capacity`] for the first byte after the last object,
/// if a rest of the slab that is smaller than an object begins there.
#[inline]
pub const fn object_at(class: usize, offset: u16) -> Option<u16> {
    let size = SHAPES[class].0;
    if offset.is_multiple_of(size) {
        Some(offset / size)
    } else {
        None
    }
}

/// The state of the objects of a slab, which says which of them are free.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Objects {
    /// Number of the first free object plus one; 0 if the list is empty.
    free: u16,
    /// Objects from `fresh` on have never been allocated.
    fresh: u16,
    /// Number of objects in use.
    used: u16,
}

impl Objects {
    #[expect(clippy::cast_possible_truncation, reason = "three fields of 16 bits")]
    /// Decodes the state from `word`.
    pub const fn from_word(word: u64) -> Self {
        Self {
            free: word as u16,
            fresh: (word >> 16) as u16,
            used: (word >> 32) as u16,
        }
    }

    /// Encodes the state as a word.
    pub const fn to_word(self) -> u64 {
        self.free as u64 | (self.fresh as u64) << 16 | (self.used as u64) << 32
    }

    /// Returns the number of objects in use.
    pub const fn used(self) -> u16 {
        self.used
    }

    /// Allocates an object of a slab with `capacity` objects, and returns its number. Returns
    /// `None` if all objects are in use. `next` must return the link that `put` has written into
    /// the free object with the given number.
    ///
    /// # Panics
    /// If the link is impossible, because the free object was written to.
    pub fn take(&mut self, capacity: u16, next: impl FnOnce(u16) -> u16) -> Option<u16> {
        let object = if let Some(object) = self.free.checked_sub(1) {
            self.free = next(object);
            assert!(self.free <= self.fresh, "a free heap object was written to");
            object
        } else if self.fresh < capacity {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return None;
        };
        self.used += 1;
        Some(object)
    }

    /// Frees the object with the number `object`. Calls `link` with the link that it must write
    /// into that object.
    ///
    /// # Panics
    /// If the object was never allocated, or no object is in use.
    pub fn put(&mut self, object: u16, link: impl FnOnce(u16)) {
        assert!(
            object < self.fresh && self.used > 0,
            "a heap object is freed that was not in use"
        );
        link(self.free);
        self.free = object + 1;
        self.used -= 1;
    }
}
