//! Random numbers from a seed.

/// The generator Splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator whose sequence depends on all numbers in `parts`.
    pub fn new(parts: &[u64]) -> Self {
        let mut random = Self(0x6765_6e65_7369_7321);
        for part in parts {
            random.0 ^= part.wrapping_mul(0xd6e8_feb8_6659_fd93);
            random.0 = random.next();
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns `true` once in `times` on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns a range of pages in 0..pages, which is mostly short and sometimes everything.
    pub fn range(&mut self, pages: u64) -> std::ops::Range<u64> {
        let longest = match self.below(4) {
            0 => pages,
            1 => pages.div_ceil(4),
            _ => pages.min(8),
        };
        let length = 1 + self.below(longest);
        let start = self.below(pages - length + 1);
        start..start + length
    }

    /// Spins for a random time, mostly short, so that other threads run in between.
    pub fn dawdle(&mut self) {
        let scale = 1 << self.below(14);
        for _ in 0..self.below(scale) {
            std::hint::spin_loop();
        }
    }
}
