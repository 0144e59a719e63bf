//! Parsers of the text written to knobs, such as files of `/proc/sys` and `/sys`. They accept what
//! Linux 6.1 accepts, byte for byte.
//!
//! - [`number`]: one number, as in the files of `/sys` and the words of the boot line.
//! - [`sysctl`]: numbers of `/proc/sys`; text that is not read may follow them.
//! - [`word`]: names and switches.

pub mod number;
pub mod sysctl;
pub mod word;

/// Returns the part of `bytes` before the first NUL, which C treats as the text.
fn c_text(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// Returns whether `byte` is white space to Linux's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ' | 0xa0)
}
