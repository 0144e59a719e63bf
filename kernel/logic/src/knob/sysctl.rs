//! Parsers of the numbers in files of `/proc/sys`: `proc_dointvec` and its kin.
//!
//! White space may precede and follow each number. The text after the last wanted number is not
//! read. Each number may have C's prefixes, and ends at a space, a tab, a newline or the end of the
//! text.

use super::is_space;
use super::number::{Base, Digits, digits};
use crate::errno::Errno;

/// The most bytes of one write that are read: one less than a page.
pub const MOST_BYTES: usize = 4095;
/// One more than the most bytes of a number, including sign and prefix.
const NUMBER_BYTES: usize = 21;

/// The result of parsing the text of one write.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// The number of values read before the end or the first error. Those values are valid even
    /// after an error.
    pub count: usize,
    /// The number of bytes consumed, or `EINVAL` if a number is invalid or the text has none.
    pub taken: Result<usize, Errno>,
}

/// Reads numbers from `text` into `values`, at most one for each place. `convert` makes a value of
/// the sign (`true` for a leading `-`) and the absolute value. It returns `None` to reject the
/// number.
fn read<T>(text: &[u8], values: &mut [T], convert: impl Fn(bool, u64) -> Option<T>) -> Numbers {
    let all = &text[..text.len().min(MOST_BYTES)];
    let (mut left, mut count) = (all, 0);
    for value in values {
        left = skip_spaces(left);
        if left.is_empty() {
            break;
        }
        let number = one(left).and_then(|(negative, number, rest)| {
            *value = convert(negative, number).ok_or(Errno::EINVAL)?;
            Ok(rest)
        });
        match number {
            Ok(rest) => left = rest,
            Err(error) => {
                return Numbers {
                    count,
                    taken: Err(error),
                };
            }
        }
        count += 1;
    }
    let left = skip_spaces(left);
    // Bytes past the first `MOST_BYTES` count as consumed although they are not read.
    let taken = if count == 0 {
        Err(Errno::EINVAL)
    } else {
        Ok(text.len() - left.len())
    };
    Numbers { count, taken }
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| is_space(byte)).count();
    &text[spaces..]
}

/// Parses the number at the beginning of `text`. Returns whether a `-` precedes it, its absolute
/// value, and the text after it. Fails with `EINVAL` if `text` begins with no number, if the number
/// is too long or too large, or if another character than a space, a tab or a newline follows it.
fn one(text: &[u8]) -> Result<(bool, u64, &[u8]), Errno> {
    let window = &text[..text.len().min(NUMBER_BYTES)];
    let (negative, unsigned) = match window {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, window),
    };
    if !unsigned.first().is_some_and(u8::is_ascii_digit) {
        return Err(Errno::EINVAL);
    }
    let Digits {
        value,
        overflows,
        rest,
        ..
    } = digits(unsigned, Base::OfPrefix);
    let length = window.len() - rest.len();
    let ends = text
        .get(length)
        .is_none_or(|next| matches!(next, b' ' | b'\t' | b'\n'));
    // A number that fills the window may continue after it.
    if overflows || length == NUMBER_BYTES || !ends {
        return Err(Errno::EINVAL);
    }
    Ok((negative, value, &text[length..]))
}

/// Reads numbers of the type `int` out of `text` into `values`, at most one for each place
/// (`proc_dointvec_minmax`). Each number must be in `least..=most`. Returns how many values were
/// read, and how many bytes of `text` or the error.
pub fn ints(text: &[u8], least: i32, most: i32, values: &mut [i32]) -> Numbers {
    read(text, values, |negative, number| {
        let number = i64::try_from(number).ok()?;
        let value = i32::try_from(if negative { -number } else { number }).ok()?;
        (least..=most).contains(&value).then_some(value)
    })
}

/// Reads numbers of the type `unsigned long` out of `text` into `values`, at most one for each
/// place (`proc_doulongvec_minmax`). Each number must be in `least..=most`. Returns how many values
/// were read, and how many bytes of `text` or the error.
pub fn longs(text: &[u8], least: u64, most: u64, values: &mut [u64]) -> Numbers {
    read(text, values, |negative, number| {
        (!negative && (least..=most).contains(&number)).then_some(number)
    })
}

/// Reads one `unsigned int` at the beginning of `text` and ignores the text after it
/// (`proc_douintvec`).
///
/// # Errors
/// `EINVAL` if the text begins with no number, or with one below 0 or above 2^32 - 1. `EINVAL` if a
/// character other than a space, a tab or a newline follows the number.
pub fn unsigned(text: &[u8]) -> Result<u32, Errno> {
    let mut value = [0];
    read(text, &mut value, |negative, number| {
        u32::try_from(number).ok().filter(|_| !negative)
    })
    .taken
    .map(|_| value[0])
}

/// Reads one number out of `text` into `value`, which becomes `false` for 0 and `true` for any
/// other number (`proc_dobool`). Returns how many values were read, and how many bytes of `text` or
/// the error. After an error `value` is unchanged.
pub fn switch(text: &[u8], value: &mut bool) -> Numbers {
    let mut values = [*value];
    let numbers = read(text, &mut values, |_, number| Some(number != 0));
    *value = values[0];
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: Result<(i32, usize), Errno> = Err(Errno::EINVAL);

    fn int(text: &[u8]) -> Result<(i32, usize), Errno> {
        let mut value = [0];
        let numbers = ints(text, i32::MIN, i32::MAX, &mut value);
        numbers.taken.map(|taken| (value[0], taken))
    }

    #[test]
    fn one_number_is_read_and_the_rest_is_left() {
        for (text, read) in [
            (&b"20"[..], Ok((20, 2))),
            (b"20\n", Ok((20, 3))),
            (b" \t\n20 \n", Ok((20, 7))),
            (b"33 44", Ok((33, 3))),
            (b"33\n44\n", Ok((33, 3))),
            (b"020", Ok((16, 3))),
            (b"010\n", Ok((8, 4))),
            (b"0x14", Ok((20, 4))),
            (b"0X1F ", Ok((31, 5))),
            (b"-5", Ok((-5, 2))),
            (b"-0x10", Ok((-16, 5))),
            (b"\xa07", Ok((7, 2))),
            (b"08", BAD),
            (b"0x", BAD),
            (b"+5", BAD),
            (b"- 5", BAD),
            (b"-", BAD),
            (b"--5", BAD),
            (b"5\0", BAD),
            (b"5a", BAD),
            (b"5,6", BAD),
            (b"5\x0b", BAD),
            (b"", BAD),
            (b" \n", BAD),
            (b"x", BAD),
            (b"2147483647", Ok((i32::MAX, 10))),
            (b"2147483648", BAD),
            (b"-2147483648", Ok((i32::MIN, 11))),
            (b"-2147483649", BAD),
            (b"18446744073709551616", BAD),
        ] {
            assert_eq!(int(text), read, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_number_has_twenty_bytes_at_most() {
        assert_eq!(int(b"00000000000000000005"), Ok((5, 20)));
        assert_eq!(int(b"000000000000000000005"), BAD);
        assert_eq!(int(b"00000000000000000005 "), Ok((5, 21)));
        assert_eq!(int(b"-0000000000000000005"), Ok((-5, 20)));
    }

    #[test]
    fn a_page_less_one_byte_is_read() {
        let mut text = [b' '; 5000];
        text[0] = b'7';
        assert_eq!(int(&text), Ok((7, 5000)));
        text[4094] = b'8';
        assert_eq!(int(&text), Ok((7, 4999)));
        text[4094] = b' ';
        text[4095] = b'8';
        assert_eq!(int(&text), Ok((7, 5000)));
        text[0] = b' ';
        assert_eq!(int(&text), BAD);
    }

    #[test]
    fn numbers_before_a_wrong_one_count() {
        let mut values = [9; 4];
        let numbers = ints(b"1 2 x 4", 0, 100, &mut values);
        assert_eq!((numbers.count, numbers.taken), (2, Err(Errno::EINVAL)));
        assert_eq!(values[..2], [1, 2]);
        let numbers = ints(b"5 6\n", 0, 100, &mut values);
        assert_eq!((numbers.count, numbers.taken), (2, Ok(4)));
        assert_eq!(values[..2], [5, 6]);
        let numbers = ints(b"5 6 7 101", 0, 100, &mut values);
        assert_eq!((numbers.count, numbers.taken), (3, Err(Errno::EINVAL)));
    }

    #[test]
    fn longs_have_no_sign() {
        let mut value = [0];
        let mut read = |text: &[u8]| longs(text, 1, u64::MAX, &mut value).taken;
        assert_eq!(read(b"18446744073709551615"), Ok(20));
        assert_eq!(read(b"-1"), Err(Errno::EINVAL));
        assert_eq!(read(b"-0"), Err(Errno::EINVAL));
        assert_eq!(read(b"0"), Err(Errno::EINVAL));
        assert_eq!(value, [u64::MAX]);
    }

    #[test]
    fn the_other_readers() {
        assert_eq!(unsigned(b"4294967295 x"), Ok(u32::MAX));
        assert_eq!(unsigned(b"4294967296"), Err(Errno::EINVAL));
        assert_eq!(unsigned(b"-1"), Err(Errno::EINVAL));
        let mut on = false;
        assert_eq!(switch(b"-3 4", &mut on).taken, Ok(3));
        assert!(on);
        assert_eq!(switch(b"y", &mut on).taken, Err(Errno::EINVAL));
        assert!(on);
        assert_eq!(switch(b"0", &mut on).taken, Ok(1));
        assert!(!on);
    }
}
