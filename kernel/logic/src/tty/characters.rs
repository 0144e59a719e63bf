//! What a byte is to a terminal: the letters and controls of Latin-1, as Linux has them.

/// Whether it moves or rings rather than shows.
pub(super) const fn is_control(c: u8) -> bool {
    c < 0x20 || c == 0x7f
}

/// Whether it is a letter or a digit.
pub(super) const fn is_alphanumeric(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c >= 0xc0 && c != 0xd7 && c != 0xf7
}

/// The small letter.
pub(super) const fn to_lower(c: u8) -> u8 {
    match c {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => c + 32,
        _ => c,
    }
}

/// The capital letter.
pub(super) const fn to_upper(c: u8) -> u8 {
    match c {
        b'a'..=b'z' | 0xe0..=0xf6 | 0xf8..=0xfe => c - 32,
        _ => c,
    }
}

/// Whether it is a byte of a UTF-8 character after its first one.
pub(super) const fn is_continuation(c: u8) -> bool {
    c & 0xc0 == 0x80
}
