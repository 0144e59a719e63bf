//! One number: `kstrtoull` and its kin, `memparse`, and the leading number of `sscanf`.

use super::{c_text, is_space};
use crate::errno::Errno;

/// In which base a number stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Base {
    /// 10, whatever zeros it begins with.
    Ten,
    /// 16 behind `0x`, 8 behind another `0`, else 10.
    OfPrefix,
}

/// The digits that a text begins with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Digits<'a> {
    /// Their value; modulo 2^64 if it is greater.
    pub(super) value: u64,
    /// The value does not fit 64 bits.
    pub(super) overflows: bool,
    /// The number of digits, without the prefix.
    pub(super) count: usize,
    /// What follows them.
    pub(super) rest: &'a [u8],
}

/// Reads the digits that `text` begins with, and the prefix that says their base.
pub(super) fn digits(text: &[u8], base: Base) -> Digits<'_> {
    let (radix, digits) = match (base, text) {
        (Base::OfPrefix, [b'0', b'x' | b'X', next, ..]) if next.is_ascii_hexdigit() => {
            (16_u32, &text[2..])
        }
        (Base::OfPrefix, [b'0', ..]) => (8, text),
        _ => (10, text),
    };
    let value_of = |&byte: &u8| char::from(byte).to_digit(radix);
    let (mut value, mut overflows, mut count) = (0_u64, false, 0);
    for digit in digits.iter().map_while(value_of) {
        let next = value
            .checked_mul(radix.into())
            .and_then(|value| value.checked_add(digit.into()));
        overflows |= next.is_none();
        value = value.wrapping_mul(radix.into()).wrapping_add(digit.into());
        count += 1;
    }
    Digits {
        value,
        overflows,
        count,
        rest: &digits[count..],
    }
}

/// Reads a number that is all of `text` but for one newline at the end (`kstrtoull`). A `+` may stand
/// before it; a NUL ends the text.
///
/// # Errors
/// `EINVAL` if there is anything else, `ERANGE` if the number is above `most`.
pub fn unsigned(text: &[u8], base: Base, most: u64) -> Result<u64, Errno> {
    let text = c_text(text);
    let number = digits(text.strip_prefix(b"+").unwrap_or(text), base);
    if number.overflows {
        return Err(Errno::ERANGE);
    }
    if number.count == 0 || !matches!(number.rest, [] | [b'\n']) {
        return Err(Errno::EINVAL);
    }
    if number.value > most {
        return Err(Errno::ERANGE);
    }
    Ok(number.value)
}

/// Reads a size: a number with one of the suffixes `K`, `M`, `G`, `T`, `P` and `E`, powers of 1024
/// (`memparse`). A text that begins with no number is 0. Returns the bytes and what follows.
pub fn size(text: &[u8]) -> (u64, &[u8]) {
    const SUFFIXES: &[u8] = b"KMGTPE";
    let number = digits(c_text(text), Base::OfPrefix);
    let suffix = number.rest.first().map(u8::to_ascii_uppercase);
    let power = SUFFIXES.iter().position(|&known| Some(known) == suffix);
    match power {
        Some(power) => (number.value << (10 * (power + 1)), &number.rest[1..]),
        None => (number.value, number.rest),
    }
}

/// Reads the decimal number that `text` begins with behind white space (`sscanf` with `%lu`). Returns
/// it and what follows, or `None` if there is no digit. What does not fit 64 bits counts modulo 2^64.
pub fn leading(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = c_text(text);
    let spaces = text.iter().take_while(|&&byte| is_space(byte)).count();
    let number = digits(&text[spaces..], Base::Ten);
    (number.count != 0).then_some((number.value, number.rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = u64::MAX;

    fn any(text: &str) -> Result<u64, Errno> {
        unsigned(text.as_bytes(), Base::OfPrefix, ALL)
    }

    fn ten(text: &str) -> Result<u64, Errno> {
        unsigned(text.as_bytes(), Base::Ten, ALL)
    }

    #[test]
    fn a_prefix_says_the_base_where_it_may() {
        for (text, of_prefix, in_ten) in [
            ("020", Ok(16), Ok(20)),
            ("010", Ok(8), Ok(10)),
            ("0x14", Ok(20), Err(Errno::EINVAL)),
            ("0X1f", Ok(31), Err(Errno::EINVAL)),
            ("08", Err(Errno::EINVAL), Ok(8)),
            ("0x", Err(Errno::EINVAL), Err(Errno::EINVAL)),
            ("0xg", Err(Errno::EINVAL), Err(Errno::EINVAL)),
            ("0", Ok(0), Ok(0)),
            ("00", Ok(0), Ok(0)),
        ] {
            assert_eq!((any(text), ten(text)), (of_prefix, in_ten), "{text}");
        }
    }

    #[test]
    fn one_newline_and_a_nul_may_follow() {
        for (text, number) in [
            ("5\n", Ok(5)),
            ("+5", Ok(5)),
            ("5\0six", Ok(5)),
            ("5\n\0\n", Ok(5)),
            ("5\n\n", Err(Errno::EINVAL)),
            (" 5", Err(Errno::EINVAL)),
            ("5 ", Err(Errno::EINVAL)),
            ("5 6", Err(Errno::EINVAL)),
            ("-5", Err(Errno::EINVAL)),
            ("++5", Err(Errno::EINVAL)),
            ("", Err(Errno::EINVAL)),
            ("\n", Err(Errno::EINVAL)),
            ("\0", Err(Errno::EINVAL)),
            ("5x", Err(Errno::EINVAL)),
        ] {
            assert_eq!(any(text), number, "{text:?}");
        }
    }

    #[test]
    fn too_large_numbers_are_out_of_range() {
        assert_eq!(any("18446744073709551615"), Ok(ALL));
        assert_eq!(any("18446744073709551616"), Err(Errno::ERANGE));
        // What does not fit is told first, whatever follows.
        assert_eq!(any("18446744073709551616x"), Err(Errno::ERANGE));
        assert_eq!(
            unsigned(b"4294967296", Base::Ten, 4_294_967_295),
            Err(Errno::ERANGE)
        );
        assert_eq!(
            unsigned(b"4294967295", Base::Ten, 4_294_967_295),
            Ok(4_294_967_295)
        );
    }

    #[test]
    fn a_size_has_a_suffix() {
        for (text, bytes, rest) in [
            ("2M", 2 << 20, ""),
            ("2048kB", 2 << 20, "B"),
            ("0x10k", 16 << 10, ""),
            ("1G\n", 1 << 30, "\n"),
            ("7", 7, ""),
            ("M", 0, ""),
            ("x", 0, "x"),
            (" 1", 0, " 1"),
        ] {
            assert_eq!(size(text.as_bytes()), (bytes, rest.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_leading_number_is_decimal() {
        assert_eq!(leading(b"020,"), Some((20, &b","[..])));
        assert_eq!(leading(b" 7"), Some((7, &b""[..])));
        assert_eq!(leading(b"0x14"), Some((0, &b"x14"[..])));
        assert_eq!(leading(b"-1"), None);
        assert_eq!(leading(b""), None);
    }
}
