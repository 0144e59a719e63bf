//! Triggers: a threshold of stall time within a window.

use super::{Resource, Stall};
use crate::errno::Errno;

/// The shortest and the longest window in microseconds.
const WINDOWS: core::ops::RangeInclusive<u32> = 500_000..=10_000_000;
/// The most bytes of a write that are read. The last byte read is ignored.
pub const TEXT_BYTES: usize = 32;
/// Number of looks at the totals in each window.
const LOOKS: u64 = 10;

/// Watches one kind of stall, and fires if its time within a window reaches a threshold. All times
/// are in nanoseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    stall: Stall,
    threshold: u64,
    window: u64,
    /// When the current window began, the total at that time, and the total's growth in the window
    /// before.
    began: u64,
    value: u64,
    earlier: u64,
    /// The total at the last look.
    seen: u64,
    /// Whether the threshold was reached and that has not been reported yet.
    pending: bool,
    /// When the trigger fired last.
    told: u64,
}

impl Trigger {
    /// Parses a write to the pressure file of `resource`: `some` or `full`, the threshold and the
    /// window, both in microseconds. The last byte of the write and any text after the numbers are
    /// ignored.
    ///
    /// # Errors
    /// `EINVAL` if the text has another form, the window is not 0.5 to 10 seconds, or the threshold
    /// is 0 or longer than the window.
    pub fn parse(text: &[u8], resource: Resource) -> Result<Self, Errno> {
        use crate::knob::number::leading;
        let read = text.len().min(TEXT_BYTES).saturating_sub(1);
        let text = &text[..read];
        let (full, rest) = match (text.strip_prefix(b"some"), text.strip_prefix(b"full")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(Errno::EINVAL),
        };
        let (threshold, rest) = leading(rest).ok_or(Errno::EINVAL)?;
        let (window, _) = leading(rest).ok_or(Errno::EINVAL)?;
        // As on Linux, only the lower 32 bits count.
        #[expect(clippy::cast_possible_truncation, reason = "so it is said")]
        let (threshold, window) = (threshold as u32, window as u32);
        if !WINDOWS.contains(&window) || !(1..=window).contains(&threshold) {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            stall: Stall::of(resource, full),
            threshold: u64::from(threshold) * 1000,
            window: u64::from(window) * 1000,
            began: 0,
            value: 0,
            earlier: 0,
            seen: 0,
            pending: false,
            told: 0,
        })
    }

    /// Returns the kind of stall that the trigger watches.
    pub fn stall(&self) -> Stall {
        self.stall
    }

    /// Returns the length of the window in nanoseconds.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Returns the time between two calls of [`Self::look`], in nanoseconds.
    pub fn look_every(&self) -> u64 {
        self.window / LOOKS
    }

    /// Begins a window at `now`, when the total time of the watched stall is `total`.
    pub fn begin(&mut self, now: u64, total: u64) {
        (self.began, self.value, self.earlier) = (now, total, 0);
        self.seen = total;
    }

    /// Returns whether `total`, the present total of the watched stall, differs from that of the
    /// last [`Self::look`].
    pub fn has_grown(&self, total: u64) -> bool {
        self.seen != total
    }

    /// Checks the watched stall, whose total is `total` at the time `now`. Returns `true` if the
    /// trigger fires. It fires if the stalls of the last window have reached the threshold, and it
    /// has not fired within a window's length.
    pub fn look(&mut self, now: u64, total: u64) -> bool {
        let new = self.has_grown(total);
        if !new && !self.pending {
            return false;
        }
        if new {
            self.seen = total;
            let growth = self.growth(now, total);
            if !self.pending && growth < self.threshold {
                return false;
            }
            self.pending = true;
        }
        if now < self.told.saturating_add(self.window) {
            return false;
        }
        self.told = now;
        self.pending = false;
        true
    }

    /// Returns the growth of the stall time in the window that ends at `now`. `total` is the total
    /// at `now`. The part of that window before the current one is estimated from the growth in the
    /// window before. Begins a new window if the current one is over.
    fn growth(&mut self, now: u64, total: u64) -> u64 {
        let elapsed = now.saturating_sub(self.began);
        let growth = total.saturating_sub(self.value);
        if elapsed > self.window {
            (self.began, self.value, self.earlier) = (now, total, growth);
            return growth;
        }
        // The part of the window before this one that still counts.
        let left = u128::from(self.earlier) * u128::from(self.window - elapsed);
        let left = u64::try_from(left / u128::from(self.window)).unwrap_or(u64::MAX);
        growth.saturating_add(left)
    }
}
