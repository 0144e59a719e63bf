//! Objects of one size in one page: which are free. Pure logic, tested on the host.
//!
//! The state fits one word, kept in the page's descriptor: `free` heads a list through the free
//! objects themselves (two bytes each: the number of the next plus one), `fresh` counts the
//! objects that were never handed out and are in no list, `used` those in use. A new page is so
//! all `fresh`, and none of it has to be written.

/// Bytes that slabs of each class hand out. Each is as aligned as its lowest set bit says.
pub const SIZES: [usize; 15] = [
    8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1344, 2048,
];

/// The largest object of a slab.
pub const MAX_SIZE: usize = SIZES[SIZES.len() - 1];

/// Bytes of a slab.
pub const SLAB_BYTES: usize = 4096;

/// Every size is a multiple of this, so objects are as aligned at least.
const UNIT: usize = 8;

/// For each number of units the first class whose objects have as many.
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

/// For each class its size and how many objects a slab has.
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

/// The class for objects of this size and alignment.
#[inline]
pub fn class_of(size: usize, align: usize) -> Option<usize> {
    let first = usize::from(*CLASSES.get(size.div_ceil(UNIT))?);
    if align <= UNIT {
        return Some(first);
    }
    (first..SIZES.len()).find(|&class| SIZES[class] & (align - 1) == 0)
}

/// Objects of a class in a slab.
#[inline]
pub const fn capacity(class: usize) -> u16 {
    SHAPES[class].1
}

/// Returns the number of the object of `class` that begins `offset` bytes into its slab, or `None`
/// if none begins there.
#[inline]
pub const fn object_at(class: usize, offset: u16) -> Option<u16> {
    let size = SHAPES[class].0;
    if offset.is_multiple_of(size) {
        Some(offset / size)
    } else {
        None
    }
}

/// Which objects of a slab are free.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Objects {
    /// Number of the first free object plus one; 0: the list is empty.
    free: u16,
    /// Objects from `fresh` on have never been used.
    fresh: u16,
    /// Objects in use.
    used: u16,
}

impl Objects {
    #[expect(clippy::cast_possible_truncation, reason = "three fields of 16 bits")]
    /// What a word keeps.
    pub const fn from_word(word: u64) -> Self {
        Self {
            free: word as u16,
            fresh: (word >> 16) as u16,
            used: (word >> 32) as u16,
        }
    }

    /// The word that keeps it.
    pub const fn to_word(self) -> u64 {
        self.free as u64 | (self.fresh as u64) << 16 | (self.used as u64) << 32
    }

    /// Objects in use.
    pub const fn used(self) -> u16 {
        self.used
    }

    /// Takes an object; `next` reads the link out of a free one. `None`: all are in use.
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

    /// Puts an object back; `link` writes the link into it.
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
