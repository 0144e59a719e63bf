//! Which process and thread numbers are in use.

use alloc::vec::Vec;

/// Numbers run from 1 to one below this: the most that Linux's `pid_max` can be.
pub const PID_MAX: u32 = 1 << 22;
/// New numbers are below this at first, as Linux's default `pid_max`.
pub const USUAL_LIMIT: u32 = 1 << 15;

/// Numbers whose bits are got together, when the first of them is used.
pub const GROUP: u32 = 1 << 15;
/// So many groups there can be.
pub const GROUPS: usize = (PID_MAX / GROUP) as usize;

const GROUP_WORDS: usize = (GROUP / 64) as usize;

/// The numbers in use, handed out in ascending order and from the start again, so that a number
/// comes back as late as possible.
#[derive(Debug)]
pub struct Numbers {
    /// A bit for each; none where none of a group was ever used.
    used: [Vec<u64>; GROUPS],
    next: u32,
    count: u32,
    /// New numbers are below this.
    limit: u32,
}

impl Numbers {
    /// None in use but 0, which is nobody's.
    pub const fn new() -> Self {
        Self {
            used: [const { Vec::new() }; GROUPS],
            next: 1,
            count: 0,
            limit: USUAL_LIMIT,
        }
    }

    /// The bits of 64 numbers.
    fn word(&self, word: usize) -> u64 {
        let group = &self.used[word / GROUP_WORDS];
        let bits = group.get(word % GROUP_WORDS).copied().unwrap_or(0);
        // 0 is nobody's.
        if word == 0 { bits | 1 } else { bits }
    }

    /// Takes the next free number; `None` when all are in use, or there is no memory to note it.
    pub fn take(&mut self) -> Option<u32> {
        let first = (self.next / 64) as usize;
        let limit = self.limit;
        let words = limit.div_ceil(64) as usize;
        // One turn more than there are words: the first is looked at in two halves.
        for turn in 0..=words {
            let word = (first + turn) % words;
            let mut free = !self.word(word);
            if turn == 0 {
                free &= u64::MAX << (self.next % 64);
            }
            #[expect(clippy::cast_possible_truncation, reason = "below PID_MAX")]
            let number = (word * 64) as u32 + free.trailing_zeros();
            if free != 0 && number < limit {
                let group = &mut self.used[word / GROUP_WORDS];
                if group.is_empty() {
                    group.try_reserve_exact(GROUP_WORDS).ok()?;
                    group.resize(GROUP_WORDS, 0);
                }
                group[word % GROUP_WORDS] |= 1 << (number % 64);
                self.next = if number + 1 >= limit { 1 } else { number + 1 };
                self.count += 1;
                return Some(number);
            }
        }
        None
    }

    /// What new numbers are below.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Has new numbers be below this, which is at least 2 and at most [`PID_MAX`]; those in use stay.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit.clamp(2, PID_MAX);
        if self.next >= self.limit {
            self.next = 1;
        }
    }

    /// The number taken last; 0 when none was.
    pub fn last(&self) -> u32 {
        self.next
            .checked_sub(1)
            .filter(|&last| last > 0 || self.count == 0)
            .unwrap_or(self.limit - 1)
    }

    /// Gives a number back.
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

    /// How many are in use.
    #[cfg(test)]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether a number is in use.
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
