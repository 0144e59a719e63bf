//! Parsers of names and switches.

use super::c_text;
use super::number::{Base, unsigned};
use crate::errno::Errno;

/// The most bytes of the text of a [`short_name`].
const SHORT_BYTES: usize = 15;

/// Returns the name in `text`, without one newline at its end (`sysfs_streq`). A NUL ends the text.
pub fn name(text: &[u8]) -> &[u8] {
    let text = c_text(text);
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// Returns the name in `text`, for a file that accepts 15 bytes. A newline is removed only if it is
/// the last byte.
///
/// # Errors
/// `EINVAL` for a longer text.
pub fn short_name(text: &[u8]) -> Result<&[u8], Errno> {
    if text.len() > SHORT_BYTES {
        return Err(Errno::EINVAL);
    }
    Ok(c_text(text.strip_suffix(b"\n").unwrap_or(text)))
}

/// Parses `text` as a switch (`kstrtobool`). Returns `true` if it begins with `y`, `t`, `1` or
/// `on`, and `false` if it begins with `n`, `f`, `0` or `of`, in upper or lower case.
///
/// # Errors
/// `EINVAL` for any other beginning.
pub fn boolean(text: &[u8]) -> Result<bool, Errno> {
    match text {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] | [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] | [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => Err(Errno::EINVAL),
    }
}

/// Parses `text` as a switch that is the number 0 (`false`) or 1 (`true`), with at most one newline
/// after it.
///
/// # Errors
/// `EINVAL` if `text` contains anything else, or a number above 1. `ERANGE` if the number does not
/// fit 64 bits.
pub fn flag(text: &[u8]) -> Result<bool, Errno> {
    match unsigned(text, Base::Ten, u64::MAX)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_ends_a_name() {
        for (text, is) in [
            (&b"always"[..], &b"always"[..]),
            (b"always\n", b"always"),
            (b"always\0\n", b"always"),
            (b"always\n\0", b"always"),
            (b"always\n\n", b"always\n"),
            (b" always", b" always"),
            (b"always ", b"always "),
            (b"", b""),
        ] {
            assert_eq!(name(text), is, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_short_name_ends_with_its_text() {
        assert_eq!(short_name(b"never\n"), Ok(&b"never"[..]));
        assert_eq!(short_name(b"never\0junk"), Ok(&b"never"[..]));
        assert_eq!(short_name(b"never\n\0"), Ok(&b"never\n"[..]));
        assert_eq!(short_name(b"fifteen bytes.."), Ok(&b"fifteen bytes.."[..]));
        assert_eq!(short_name(b"sixteen bytes..\n"), Err(Errno::EINVAL));
    }

    #[test]
    fn a_boolean_is_told_by_its_beginning() {
        for text in ["y", "Yes", "true", "T", "1", "1x", "on", "ONE"] {
            assert_eq!(boolean(text.as_bytes()), Ok(true), "{text}");
        }
        for text in ["n", "No", "false", "0", "01", "off", "oF"] {
            assert_eq!(boolean(text.as_bytes()), Ok(false), "{text}");
        }
        for text in ["", "o", "2", " 1", "-1", "x"] {
            assert_eq!(boolean(text.as_bytes()), Err(Errno::EINVAL), "{text}");
        }
    }

    #[test]
    fn a_flag_is_a_number() {
        assert_eq!(flag(b"1\n"), Ok(true));
        assert_eq!(flag(b"000"), Ok(false));
        assert_eq!(flag(b"2"), Err(Errno::EINVAL));
        assert_eq!(flag(b"y"), Err(Errno::EINVAL));
        assert_eq!(flag(b"99999999999999999999"), Err(Errno::ERANGE));
    }
}
