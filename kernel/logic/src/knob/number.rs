//! Parsers of one number: `kstrtoull` and its kin, `memparse`, and the leading number of `sscanf`.

use super::{c_text, is_space};
use crate::errno::Errno;

/// The base of a number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Base {
    /// 10, even with leading zeros.
    Ten,
    /// 16 after the prefix `0x`, 8 after any other leading `0`, else 10.
    OfPrefix,
}

/// The digits at the beginning of a text.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Digits<'a> {
    /// Value of the digits, modulo 2^64.
    pub(super) value: u64,
    /// Whether the value exceeds 64 bits.
    pub(super) overflows: bool,
    /// The number of digits, without the prefix.
    pub(super) count: usize,
    /// The text after the digits.
    pub(super) rest: &'a [u8],
}

/// Parses the digits at the beginning of `text`. With [`Base::OfPrefix`] for `base`, a prefix such
/// as `0x` determines their base.
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

/// Parses a number in `base` that is all of `text`, except for one newline at the end
/// (`kstrtoull`). A `+` may precede it. A NUL ends the text.
///
/// # Errors
/// `EINVAL` if `text` contains anything else, `ERANGE` if the number is above `most`.
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

/// Parses an `int` in `base` that is all of `text`, except for one newline at the end
/// (`kstrtoint`). A sign may precede it. A NUL ends the text.
///
/// # Errors
/// `EINVAL` if `text` contains anything else, `ERANGE` if the number does not fit.
pub fn signed(text: &[u8], base: Base) -> Result<i32, Errno> {
    match text.strip_prefix(b"-") {
        Some([b'+', ..]) => Err(Errno::EINVAL),
        Some(text) => {
            let value = unsigned(text, base, 1 << 31)?;
            i32::try_from(-value.cast_signed()).map_err(|_| Errno::ERANGE)
        }
        None => {
            let value = unsigned(text, base, u64::MAX)?;
            i32::try_from(value).map_err(|_| Errno::ERANGE)
        }
    }
}

/// Parses the size at the beginning of `text` (`memparse`). A size is a number, and possibly one of
/// the suffixes `K`, `M`, `G`, `T`, `P` and `E`, powers of 1024, in upper or lower case. Returns
/// the number of bytes, modulo 2^64, and the text after the size. The number is 0 if `text` begins
/// with no digit.
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

/// Parses the decimal number at the beginning of `text`, after white space (`sscanf` with `%lu`).
/// Returns the number modulo 2^64 and the text after it, or `None` if there is no digit.
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
        // Overflow is reported first, even if other characters follow.
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

    #[test]
    fn signed_numbers_are_ints() {
        let of = |text: &str| signed(text.as_bytes(), Base::OfPrefix);
        assert_eq!(of("-0x10\n"), Ok(-16));
        assert_eq!(of("+010"), Ok(8));
        assert_eq!(of("-2147483648"), Ok(i32::MIN));
        for (text, error) in [
            ("-2147483649", Errno::ERANGE),
            ("2147483648", Errno::ERANGE),
            ("-+1", Errno::EINVAL),
            ("--1", Errno::EINVAL),
            ("-", Errno::EINVAL),
            ("1 ", Errno::EINVAL),
        ] {
            assert_eq!(of(text), Err(error), "{text}");
        }
    }
}
