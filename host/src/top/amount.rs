//! Figures for a table column: few characters, with the unit at the end.

use std::fmt;

/// The text in place of a figure that is unknown.
pub(super) const UNKNOWN: &str = "-";

/// A number of bytes, displayed in at most seven characters with a binary unit: `512K`, `45.1M`,
/// `1.50G`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "it is rounded to three digits")]
        let of = |unit: u32| self.0 as f64 / (1u64 << unit) as f64;
        let text = match self.0 {
            0 => "0".to_owned(),
            1..0x10_0000 => format!("{:.0}K", of(10).max(1.0)),
            0x10_0000..0x4000_0000 => format!("{:.1}M", of(20)),
            0x4000_0000..0x2_8000_0000 => format!("{:.2}G", of(30)),
            0x2_8000_0000..0x19_0000_0000 => format!("{:.1}G", of(30)),
            0x19_0000_0000..0x100_0000_0000 => format!("{:.0}G", of(30)),
            _ => format!("{:.2}T", of(40)),
        };
        f.pad(&text)
    }
}

/// A number of events per second, displayed in at most seven characters without a unit: `0`, `3.5`,
/// `120`, `250k`.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Rate(pub(super) f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.0;
        let text = if rate < 0.05 {
            "0".to_owned()
        } else if rate < 10.0 {
            format!("{rate:.1}")
        } else if rate < 100_000.0 {
            format!("{rate:.0}")
        } else if rate < 10_000_000.0 {
            format!("{:.0}k", rate / 1e3)
        } else {
            format!("{:.0}M", rate / 1e6)
        };
        f.pad(&text)
    }
}

/// A time in seconds, displayed in at most seven characters: `12s`, `3m 05s`, `2h 07m`, `4d 03h`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Seconds(pub(super) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0;
        let text = match seconds {
            0..60 => format!("{seconds}s"),
            60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
            3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
            _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_short_and_have_a_unit() {
        for (bytes, text) in [
            (0, "0"),
            (1, "1K"),
            (512 << 10, "512K"),
            (1 << 20, "1.0M"),
            (45 << 20, "45.0M"),
            ((1 << 30) - 1, "1024.0M"),
            (3 << 29, "1.50G"),
            (64 << 30, "64.0G"),
            (512 << 30, "512G"),
            (3 << 40, "3.00T"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>7}", Bytes(45 << 20)), "  45.0M");
        for shift in 0..50 {
            assert!(Bytes((1 << shift) - 1).to_string().len() <= 7);
        }
    }

    #[test]
    fn rates_and_times_are_short() {
        for (rate, text) in [(0.0, "0"), (0.5, "0.5"), (1234.4, "1234"), (2.5e6, "2500k")] {
            assert_eq!(Rate(rate).to_string(), text);
        }
        for (seconds, text) in [
            (7, "7s"),
            (185, "3m 05s"),
            (7620, "2h 07m"),
            (356_400, "4d 03h"),
        ] {
            assert_eq!(Seconds(seconds).to_string(), text);
        }
    }
}
