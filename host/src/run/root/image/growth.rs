//! Vectors that grow by a small part of their length, because reserved memory counts against a
//! limit.

/// The fewest elements that are reserved at a time.
const LEAST: usize = 64;
/// A vector grows by its length divided by `PART`.
const PART: usize = 16;

/// Appends `more` to `list`. If the capacity does not suffice, reserves space for `more`, for 1/16
/// of the length or for 64 elements, whichever is the most.
pub(super) fn push_all<T: Copy>(list: &mut Vec<T>, more: &[T]) {
    if list.capacity() - list.len() < more.len() {
        list.reserve_exact(more.len().max(list.len() / PART).max(LEAST));
    }
    list.extend_from_slice(more);
}

/// A bitmap with one bit for each node number. It grows when a bit is set, and missing bits are
/// clear.
#[derive(Debug, Default)]
pub(super) struct Bitmap(Vec<u64>);

impl Bitmap {
    /// Sets the bit of node `number`. Returns `true` if it was set before.
    pub(super) fn set(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        while self.0.len() <= word {
            push_all(&mut self.0, &[0]);
        }
        let was = self.0[word] & bit != 0;
        self.0[word] |= bit;
        was
    }

    /// Returns whether the bit of node `number` is set.
    pub(super) fn get(&self, number: u32) -> bool {
        let word = self.0.get(number as usize / 64);
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Clears all bits. Keeps the memory.
    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Returns the number of bytes of memory that are reserved for the bitmap.
    pub(super) fn bytes(&self) -> usize {
        size_of::<u64>() * self.0.capacity()
    }
}
