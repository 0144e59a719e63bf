//! How lists grow that may be long: by a part of what they are, as what is reserved counts.

/// The least that is reserved.
const LEAST: usize = 64;
/// A list grows by this part of it.
const PART: usize = 16;

/// Adds to the end of a list.
pub(super) fn push_all<T: Copy>(list: &mut Vec<T>, more: &[T]) {
    if list.capacity() - list.len() < more.len() {
        list.reserve_exact(more.len().max(list.len() / PART).max(LEAST));
    }
    list.extend_from_slice(more);
}

/// One bit for each file.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<u64>);

impl Marks {
    /// Sets the bit of a file. Returns whether it was set.
    pub(super) fn set(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        while self.0.len() <= word {
            push_all(&mut self.0, &[0]);
        }
        let was = self.0[word] & bit != 0;
        self.0[word] |= bit;
        was
    }

    /// Returns whether the bit of a file is set.
    pub(super) fn get(&self, number: u32) -> bool {
        let word = self.0.get(number as usize / 64);
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Clears the bits of all files.
    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<u64>() * self.0.capacity()
    }
}
