//! Classes of bytes for a terminal: the letters and controls of Latin-1, as on Linux.

/// Returns whether `c` is a control character.
pub(super) const fn is_control(c: u8) -> bool {
    c < 0x20 || c == 0x7f
}

/// Returns whether `c` is a letter or a digit.
pub(super) const fn is_alphanumeric(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c >= 0xc0 && c != 0xd7 && c != 0xf7
}

/// Returns the lower-case letter of `c`, or `c` itself if it has none.
pub(super) const fn to_lower(c: u8) -> u8 {
    match c {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => c + 32,
        _ => c,
    }
}

/// Returns the upper-case letter of `c`, or `c` itself if it has none.
pub(super) const fn to_upper(c: u8) -> u8 {
    match c {
        b'a'..=b'z' | 0xe0..=0xf6 | 0xf8..=0xfe => c - 32,
        _ => c,
    }
}

/// Returns whether `c` is a byte of a UTF-8 character after its first one.
pub(super) const fn is_continuation(c: u8) -> bool {
    c & 0xc0 == 0x80
}
