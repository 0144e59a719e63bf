//! Which process and thread numbers are in use.

/// Numbers run from 1 to one below this, as Linux's default `pid_max`.
pub const PID_MAX: u32 = 32768;

const WORDS: usize = (PID_MAX / 64) as usize;

/// The numbers in use, handed out in ascending order and from the start again, so that a number
/// comes back as late as possible.
#[derive(Debug)]
pub struct Numbers {
    used: [u64; WORDS],
    next: u32,
    count: u32,
    /// New numbers are below this.
    limit: u32,
}

impl Numbers {
    /// None in use but 0, which is nobody's.
    pub const fn new() -> Self {
        let mut used = [0; WORDS];
        used[0] = 1;
        Self {
            used,
            next: 1,
            count: 0,
            limit: PID_MAX,
        }
    }

    /// Takes the next free number; `None` when all are in use.
    pub fn take(&mut self) -> Option<u32> {
        let first = (self.next / 64) as usize;
        let limit = self.limit;
        // One turn more than there are words: the first is looked at in two halves.
        for turn in 0..=WORDS {
            let word = (first + turn) % WORDS;
            let mut free = !self.used[word];
            if turn == 0 {
                free &= u64::MAX << (self.next % 64);
            }
            #[expect(clippy::cast_possible_truncation, reason = "below PID_MAX")]
            let number = (word * 64) as u32 + free.trailing_zeros();
            if free != 0 && number < limit {
                self.used[word] |= 1 << (number % 64);
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
        let word = &mut self.used[(number / 64) as usize];
        let bit = 1u64 << (number % 64);
        assert!(
            number != 0 && *word & bit != 0,
            "process number {number} is not in use"
        );
        *word &= !bit;
        self.count -= 1;
    }

    /// How many are in use.
    #[cfg(test)]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether a number is in use.
    #[cfg(test)]
    pub fn contains(&self, number: u32) -> bool {
        number < PID_MAX && self.used[(number / 64) as usize] & (1 << (number % 64)) != 0
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::new()
    }
}
