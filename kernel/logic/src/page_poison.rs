//! The contents with which the kernel fills freed pages, and the check that no write changed them.
//!
//! A page that the host dropped comes back as zeros, and a page that was never allocated is zero.
//! So a page is intact if all of it is the fill or all of it is zero.

/// The byte that fills freed pages under `page_poison=1`, Linux's `PAGE_POISON`.
pub const POISON: u8 = 0xaa;
/// [`POISON`] in each byte.
pub const POISON_WORD: u64 = u64::from_ne_bytes([POISON; 8]);

/// The contents with which freed pages are filled.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fill {
    /// Freed pages keep their contents.
    Nothing,
    /// [`POISON`] in each byte (`page_poison=1`), checked when the page is allocated.
    Poison,
    /// Zeros (`init_on_free=1`).
    Zeros,
}

impl Fill {
    /// Returns the fill for the options `page_poison` and `init_on_free` of the boot line.
    /// `page_poison` takes precedence, as on Linux.
    pub const fn of(page_poison: bool, init_on_free: bool) -> Self {
        match (page_poison, init_on_free) {
            (true, _) => Self::Poison,
            (false, true) => Self::Zeros,
            (false, false) => Self::Nothing,
        }
    }

    /// Returns the contents of a free page for the balloon device: a pattern of 32 bits that
    /// repeats. Returns `None` if the contents are arbitrary.
    pub const fn pattern(self) -> Option<u32> {
        match self {
            Self::Nothing => None,
            Self::Poison => Some(u32::from_ne_bytes([POISON; 4])),
            Self::Zeros => Some(0),
        }
    }
}

/// The damage by writes to a page after it was poisoned.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The first wrong word.
    pub word: u64,
    /// The number of `word` in the page.
    pub index: usize,
    /// Number of wrong words.
    pub words: usize,
    /// The value that `word` should have.
    pub expected: u64,
}

impl Damage {
    /// Returns whether only one bit of the page is wrong, which is mostly a fault of the memory
    /// hardware.
    pub const fn is_single_bit(&self) -> bool {
        self.words == 1 && (self.word ^ self.expected).count_ones() == 1
    }
}

/// Returns the damage in a poisoned page, whose words `page` yields. Returns `None` if the page is
/// intact: all of it is [`POISON`], or all of it is zero.
pub fn damage(page: impl Iterator<Item = u64> + Clone) -> Option<Damage> {
    let is_all = |fill: u64| page.clone().all(|word| word == fill);
    if is_all(POISON_WORD) || is_all(0) {
        return None;
    }
    // The page was filled with the value that most of its words have.
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

/// Parses `text` as a switch, by the rules of Linux's `kstrtobool`. Returns `None` if `text` is
/// invalid.
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
