//! The CMOS clock, for boots without a time on the command line.

use super::cpu::{inb, outb};

/// The most polls for the end of an update of the clock.
const MAX_POLLS: u32 = 10_000;

fn register(number: u8) -> u8 {
    // SAFETY: index and data port of the CMOS; reading changes nothing.
    unsafe {
        outb(0x70, number | 0x80);
        inb(0x71)
    }
}

/// Returns the time in seconds since 1970. Returns 0 if there is no clock, or its date is invalid.
pub(super) fn read() -> u64 {
    const UPDATING: u8 = 0x80;
    const BINARY: u8 = 1 << 2;
    const HOURS_24: u8 = 1 << 1;
    let mut polls = 0;
    while register(0x0a) & UPDATING != 0 {
        polls += 1;
        if polls == MAX_POLLS {
            return 0;
        }
    }
    let status = register(0x0b);
    let value = |number: u8| {
        let raw = register(number);
        let raw = if number == 4 { raw & 0x7f } else { raw };
        u64::from(if status & BINARY != 0 {
            raw
        } else {
            (raw >> 4) * 10 + (raw & 0xf)
        })
    };
    let afternoon = status & HOURS_24 == 0 && register(4) & 0x80 != 0;
    let hour = value(4) % if status & HOURS_24 == 0 { 12 } else { 24 } + u64::from(afternoon) * 12;
    let century = match value(0x32) {
        century @ 19..=22 => century,
        _ => 20,
    };
    let (year, month, day) = (century * 100 + value(9), value(8), value(7));
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return 0;
    }
    ((days(year, month, day) * 24 + hour) * 60 + value(2)) * 60 + value(0)
}

/// Returns the number of days from 1970-01-01 to the date `year`-`month`-`day` of the Gregorian
/// calendar. `year` is at least 1970, and months and days count from 1.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years begin in March, so that the leap day is the last.
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days_before_month = (153 * month + 2) / 5;
    let since_0 = year * 365 + year / 4 - year / 100 + year / 400 + days_before_month + day - 1;
    since_0 - 719_468
}
