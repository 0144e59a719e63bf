//! Text that the kernel makes for a program to read: it grows, and runs out of memory politely.

use alloc::vec::Vec;
use core::fmt;
use logic::errno::Errno;

/// The longest text that one file shows.
const MAX_BYTES: usize = 16 << 20;
/// What it gets to begin with: most texts need no more.
const LEAST_BYTES: usize = 1024;
/// The digits of the largest number.
const DIGITS: usize = 20;

/// The digit of a value below 16.
fn digit(value: u64) -> u8 {
    b"0123456789abcdef"[(value & 15) as usize]
}

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
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> fmt::Result {
        if bytes.len() > self.bytes.capacity() - self.bytes.len() {
            self.make_room(bytes.len())?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Makes room for so many bytes, and for as much again as there is.
    #[cold]
    fn make_room(&mut self, bytes: usize) -> fmt::Result {
        let left = MAX_BYTES.saturating_sub(self.bytes.len());
        if bytes > left {
            self.error = Some(Errno::EFBIG);
            return Err(fmt::Error);
        }
        let more = bytes.max(self.bytes.len()).max(LEAST_BYTES).min(left);
        if self.bytes.try_reserve_exact(more).is_err() {
            self.error = Some(Errno::ENOMEM);
            return Err(fmt::Error);
        }
        Ok(())
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a number, which `write!` does for ten times the price, and a byte behind it.
    pub fn number(&mut self, number: u64, behind: u8) -> fmt::Result {
        self.aligned(number, 0, behind)
    }

    /// The same, to the right of a column of this width, 20 at most.
    pub fn aligned(&mut self, number: u64, width: usize, behind: u8) -> fmt::Result {
        let mut digits = [b' '; DIGITS + 1];
        digits[DIGITS] = behind;
        let (mut at, mut left) = (DIGITS, number);
        // A turn for each digit.
        loop {
            at -= 1;
            digits[at] = digit(left % 10);
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.push(&digits[at.min(DIGITS - width.min(DIGITS))..])
    }

    /// Adds a number in hexadecimal, with zeros before it up to this width, and a byte behind it.
    pub fn hex(&mut self, number: u64, width: usize, behind: u8) -> fmt::Result {
        let mut digits = [b'0'; DIGITS + 1];
        digits[DIGITS] = behind;
        let (mut at, mut left) = (DIGITS, number);
        // A turn for each digit.
        loop {
            at -= 1;
            digits[at] = digit(left & 15);
            left >>= 4;
            if left == 0 {
                break;
            }
        }
        self.push(&digits[at.min(DIGITS - width.min(DIGITS))..])
    }

    /// Adds so many spaces.
    pub fn spaces(&mut self, count: usize) -> fmt::Result {
        const SPACES: [u8; 64] = [b' '; 64];
        let mut left = count;
        while left > 0 {
            let some = left.min(SPACES.len());
            self.push(&SPACES[..some])?;
            left -= some;
        }
        Ok(())
    }

    /// Adds a name with backslash escapes for what would break a line or a field, as Linux's
    /// `seq_path` and `mangle_path` do.
    pub fn push_escaped(&mut self, bytes: &[u8], special: &[u8]) -> fmt::Result {
        let mut left = bytes;
        // A turn for each of the bytes that are escaped.
        while let Some(at) = left.iter().position(|b| special.contains(b) || *b == b'\\') {
            let byte = left[at];
            self.push(&left[..at])?;
            let octal = [
                b'\\',
                b'0' + (byte >> 6),
                b'0' + (byte >> 3 & 7),
                b'0' + (byte & 7),
            ];
            self.push(&octal)?;
            left = &left[at + 1..];
        }
        self.push(left)
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
