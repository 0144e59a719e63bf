//! The process and thread numbers in use.

use alloc::vec::Vec;

/// Numbers run from 1 to one below this, the maximum of Linux's `pid_max`.
pub const PID_MAX: u32 = 1 << 22;
/// The initial limit of new numbers, which is Linux's default `pid_max`.
pub const USUAL_LIMIT: u32 = 1 << 15;

/// The numbers below this one are used once, after the start. Linux's `RESERVED_PIDS`.
pub const RESERVED: u32 = 300;

/// Number of process numbers in a group. The bits of a group are allocated when its first number is
/// used.
pub const GROUP: u32 = 1 << 15;
/// The number of groups of process numbers.
pub const GROUPS: usize = (PID_MAX / GROUP) as usize;

const GROUP_WORDS: usize = (GROUP / 64) as usize;

/// The process and thread numbers in use. They are allocated in ascending order and then from
/// [`RESERVED`] again, so that a number is reused as late as possible.
#[derive(Debug)]
pub struct Numbers {
    /// A bit for each number, or an empty vector for a group that was never used.
    used: [Vec<u64>; GROUPS],
    next: u32,
    /// The number allocated last, or 0.
    last: u32,
    count: u32,
    /// New numbers are below this.
    limit: u32,
}

impl Numbers {
    /// Returns a set in which only 0 is in use. 0 is no process's number.
    pub const fn new() -> Self {
        Self {
            used: [const { Vec::new() }; GROUPS],
            next: 1,
            last: 0,
            count: 0,
            limit: USUAL_LIMIT,
        }
    }

    /// Returns the bits of the 64 numbers in word `word`.
    fn word(&self, word: usize) -> u64 {
        let group = &self.used[word / GROUP_WORDS];
        let bits = group.get(word % GROUP_WORDS).copied().unwrap_or(0);
        // 0 is no process's number.
        if word == 0 { bits | 1 } else { bits }
    }

    /// Allocates the next free number and returns it. Returns `None` if all numbers from
    /// [`RESERVED`] to the limit are in use, or if memory for the bits is short.
    pub fn take(&mut self) -> Option<u32> {
        let least = if self.next < RESERVED { 1 } else { RESERVED };
        let first = (self.next / 64) as usize;
        let limit = self.limit;
        let words = limit.div_ceil(64) as usize;
        // One iteration more than there are words: the first word is searched in two halves.
        for turn in 0..=words {
            let word = (first + turn) % words;
            #[expect(clippy::cast_possible_truncation, reason = "below PID_MAX")]
            let start = (word * 64) as u32;
            let from = if turn == 0 { self.next } else { least };
            let skipped = from.saturating_sub(start);
            let free = !self.word(word) & u64::MAX.checked_shl(skipped).unwrap_or(0);
            let number = start + free.trailing_zeros();
            if free != 0 && number < limit {
                let group = &mut self.used[word / GROUP_WORDS];
                if group.is_empty() {
                    group.try_reserve_exact(GROUP_WORDS).ok()?;
                    group.resize(GROUP_WORDS, 0);
                }
                group[word % GROUP_WORDS] |= 1 << (number % 64);
                self.last = number;
                self.next = if number + 1 >= limit {
                    RESERVED
                } else {
                    number + 1
                };
                self.count += 1;
                return Some(number);
            }
        }
        None
    }

    /// Returns the limit of new numbers, which are below it.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the limit of new numbers to `limit`, or to the nearest number above [`RESERVED`] and up
    /// to [`PID_MAX`]. Numbers in use stay.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit.clamp(RESERVED + 1, PID_MAX);
        if self.next >= self.limit {
            self.next = RESERVED;
        }
    }

    /// Returns the number allocated last, or 0 if there was none.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// Frees `number`.
    ///
    /// # Panics
    /// If `number` is not in use.
    pub fn give_back(&mut self, number: u32) {
        assert!(
            number != 0 && self.is_used(number),
            "process number {number} is not in use"
        );
        let word = (number / 64) as usize;
        self.used[word / GROUP_WORDS][word % GROUP_WORDS] &= !(1 << (number % 64));
        self.count -= 1;
    }

    fn is_used(&self, number: u32) -> bool {
        number < PID_MAX && self.word((number / 64) as usize) & (1 << (number % 64)) != 0
    }

    /// Returns the number of process and thread numbers in use.
    #[cfg(test)]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether `number` is in use.
    #[cfg(test)]
    pub fn contains(&self, number: u32) -> bool {
        self.is_used(number)
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::new()
    }
}
