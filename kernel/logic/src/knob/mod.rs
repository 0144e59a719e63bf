//! How knobs read what is written to them: the readers of Linux 6.1, byte for byte.
//!
//! - [`number`]: one number, as the files of `/sys` and the words of the boot line have it.
//! - [`sysctl`]: numbers of `/proc/sys`, which may be followed by what is not read.
//! - [`word`]: names and switches.

pub mod number;
pub mod sysctl;
pub mod word;

/// The part of `bytes` before the first NUL: what C takes for the text.
fn c_text(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// Whether Linux's `isspace` takes `byte` for white space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ' | 0xa0)
}
