//! What the kernel fills freed pages with, and how it sees that one was written to after that.
//!
//! A page that the host dropped meanwhile comes back as zeros, and one that nobody had before is zero. So a page is sound if
//! all of it is the fill or all of it is zero.

/// The byte that fills freed pages under `page_poison=1`, Linux's `PAGE_POISON`.
pub const POISON: u8 = 0xaa;
/// [`POISON`] in each byte.
pub const POISON_WORD: u64 = u64::from_ne_bytes([POISON; 8]);

/// What freed pages are filled with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fill {
    /// They keep what was in them.
    Nothing,
    /// [`POISON`] in each byte (`page_poison=1`), checked when the page is allocated.
    Poison,
    /// Zeros (`init_on_free=1`).
    Zeros,
}

impl Fill {
    /// Returns what the two words of the boot line together ask for. `page_poison` takes precedence, as on Linux.
    pub const fn of(page_poison: bool, init_on_free: bool) -> Self {
        match (page_poison, init_on_free) {
            (true, _) => Self::Poison,
            (false, true) => Self::Zeros,
            (false, false) => Self::Nothing,
        }
    }

    /// Returns the contents of a free page as the balloon device knows them: 32 bits that repeat. `None`: any contents.
    pub const fn pattern(self) -> Option<u32> {
        match self {
            Self::Nothing => None,
            Self::Poison => Some(u32::from_ne_bytes([POISON; 4])),
            Self::Zeros => Some(0),
        }
    }
}

/// What was written to a page after it was poisoned.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The first word that is not as it was, and its number in the page.
    pub word: u64,
    /// See `word`.
    pub index: usize,
    /// Number of words that are not as they were.
    pub words: usize,
    /// The word's value before.
    pub expected: u64,
}

impl Damage {
    /// Returns `true` if only one bit of the page is wrong, which is mostly the memory's fault.
    pub const fn is_single_bit(&self) -> bool {
        self.words == 1 && (self.word ^ self.expected).count_ones() == 1
    }
}

/// Returns what was written to a poisoned page with these words, or `None` if it is sound.
pub fn damage(page: impl Iterator<Item = u64> + Clone) -> Option<Damage> {
    let is_all = |fill: u64| page.clone().all(|word| word == fill);
    if is_all(POISON_WORD) || is_all(0) {
        return None;
    }
    // Most words decide which of the two it was.
    let zeros = page.clone().filter(|&word| word == 0).count();
    let poisons = page.clone().filter(|&word| word == POISON_WORD).count();
    let expected = if zeros > poisons { 0 } else { POISON_WORD };
    let mut wrong = page.enumerate().filter(|&(_, word)| word != expected);
    let (index, word) = wrong.next()?;
    Some(Damage {
        word,
        index,
        words: 1 + wrong.count(),
        expected,
    })
}

/// Returns the meaning of a value as Linux's `kstrtobool` reads it, or `None` if it has none.
pub fn switch(text: &str) -> Option<bool> {
    match text.as_bytes() {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] => Some(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] => Some(false),
        [b'o' | b'O', b'n' | b'N', ..] => Some(true),
        [b'o' | b'O', b'f' | b'F', ..] => Some(false),
        _ => None,
    }
}

#[cfg(test)]
#[path = "page_poison_tests.rs"]
mod tests;
