//! Text that the kernel makes for a program to read: it grows, and runs out of memory politely.

use alloc::vec::Vec;
use core::fmt;
use logic::errno::Errno;

/// The longest text that one file shows.
const MAX_BYTES: usize = 16 << 20;

/// Text that is being written with `write!`.
#[derive(Debug, Default)]
pub struct Text {
    bytes: Vec<u8>,
    error: Option<Errno>,
}

impl Text {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            error: None,
        }
    }

    /// Adds bytes that need not be UTF-8: names and arguments.
    pub fn push(&mut self, bytes: &[u8]) -> fmt::Result {
        if self.bytes.len() + bytes.len() > MAX_BYTES {
            self.error = Some(Errno::EFBIG);
            return Err(fmt::Error);
        }
        if self.bytes.try_reserve(bytes.len()).is_err() {
            self.error = Some(Errno::ENOMEM);
            return Err(fmt::Error);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds a name with backslash escapes for what would break a line or a field, as Linux's
    /// `seq_path` and `mangle_path` do.
    pub fn push_escaped(&mut self, bytes: &[u8], special: &[u8]) -> fmt::Result {
        for &byte in bytes {
            if special.contains(&byte) || byte == b'\\' {
                let octal = [
                    b'\\',
                    b'0' + (byte >> 6),
                    b'0' + (byte >> 3 & 7),
                    b'0' + (byte & 7),
                ];
                self.push(&octal)?;
            } else {
                self.push(&[byte])?;
            }
        }
        Ok(())
    }

    /// Breaks the writing off with an error of its own.
    pub fn fail(&mut self, error: Errno) -> fmt::Error {
        self.error = Some(error);
        fmt::Error
    }

    /// The text, if `written` says that it is complete.
    pub fn finish(self, written: fmt::Result) -> Result<Vec<u8>, Errno> {
        match (written, self.error) {
            (Ok(()), None) => Ok(self.bytes),
            (_, error) => Err(error.unwrap_or(Errno::EIO)),
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes())
    }
}
