//! Text that the kernel makes for a program to read. It grows by chunks, so it needs no large
//! contiguous memory, and an allocation that fails makes the writing fail.

use alloc::vec::Vec;
use core::fmt;
use logic::errno::Errno;

/// The longest text that one file shows.
const MAX_BYTES: usize = 16 << 20;
/// The first allocation. Most texts need no more.
const LEAST_BYTES: usize = 1024;
/// Bytes of each chunk except the last.
const CHUNK: usize = 32 << 10;
/// The digits of the largest number.
const DIGITS: usize = 20;

/// Returns the digit of a value below 16.
fn digit(value: u64) -> u8 {
    b"0123456789abcdef"[(value & 15) as usize]
}

/// Text that is being written with `write!`.
#[derive(Debug, Default)]
pub struct Text {
    /// Full chunks.
    full: Vec<Vec<u8>>,
    /// The chunk that grows.
    bytes: Vec<u8>,
    error: Option<Errno>,
}

/// Text that is complete.
#[derive(Debug)]
pub struct Made {
    chunks: Vec<Vec<u8>>,
    len: usize,
}

impl Made {
    /// Returns an empty text.
    pub const fn empty() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes from `at` to the end of their chunk. Empty at the end of the text and
    /// behind it.
    pub fn from(&self, at: usize) -> &[u8] {
        let chunk = self.chunks.get(at / CHUNK);
        chunk
            .and_then(|chunk| chunk.get(at % CHUNK..))
            .unwrap_or(&[])
    }
}

impl Text {
    /// Returns a text without bytes.
    pub const fn new() -> Self {
        Self {
            full: Vec::new(),
            bytes: Vec::new(),
            error: None,
        }
    }

    /// Adds bytes that need not be UTF-8, such as names and arguments.
    ///
    /// # Errors
    /// Fails if the text would be too long or memory is short. [`Self::finish`] returns the reason.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> fmt::Result {
        if bytes.len() > self.bytes.capacity() - self.bytes.len() {
            return self.push_growing(bytes);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds bytes that do not fit into the allocated part of the chunk that grows. Fails if the
    /// text would be longer than [`MAX_BYTES`] or memory is short.
    #[cold]
    fn push_growing(&mut self, bytes: &[u8]) -> fmt::Result {
        if bytes.len() > MAX_BYTES.saturating_sub(self.len()) {
            return Err(self.fail(Errno::EFBIG));
        }
        let mut left = bytes;
        // Each turn adds bytes or begins a chunk.
        while !left.is_empty() {
            let room = CHUNK - self.bytes.len();
            if room == 0 {
                if self.full.try_reserve(1).is_err() {
                    return Err(self.fail(Errno::ENOMEM));
                }
                self.full.push(core::mem::take(&mut self.bytes));
                continue;
            }
            let (now, behind) = left.split_at(left.len().min(room));
            if now.len() > self.bytes.capacity() - self.bytes.len() {
                // The size doubles, within the chunk.
                let more = now.len().max(self.bytes.len()).max(LEAST_BYTES).min(room);
                if self.bytes.try_reserve_exact(more).is_err() {
                    return Err(self.fail(Errno::ENOMEM));
                }
            }
            self.bytes.extend_from_slice(now);
            left = behind;
        }
        Ok(())
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.full.len() * CHUNK + self.bytes.len()
    }

    /// Adds a decimal number and the byte `behind`. `write!` would take ten times as long.
    ///
    /// # Errors
    /// Fails as [`Self::push`] does.
    pub fn number(&mut self, number: u64, behind: u8) -> fmt::Result {
        self.aligned(number, 0, behind)
    }

    /// Adds a decimal number, right-aligned in a column of `width` characters (at most 20), and the
    /// byte `behind`.
    ///
    /// # Errors
    /// Fails as [`Self::push`] does.
    pub fn aligned(&mut self, number: u64, width: usize, behind: u8) -> fmt::Result {
        let mut digits = [b' '; DIGITS + 1];
        digits[DIGITS] = behind;
        let (mut at, mut left) = (DIGITS, number);
        // One turn for each digit.
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

    /// Adds a hexadecimal number, padded with zeros to `width` digits (at most 20), and the byte
    /// `behind`.
    ///
    /// # Errors
    /// Fails as [`Self::push`] does.
    pub fn hex(&mut self, number: u64, width: usize, behind: u8) -> fmt::Result {
        let mut digits = [b'0'; DIGITS + 1];
        digits[DIGITS] = behind;
        let (mut at, mut left) = (DIGITS, number);
        // One turn for each digit.
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

    /// Adds `count` spaces.
    ///
    /// # Errors
    /// Fails as [`Self::push`] does.
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

    /// Adds a name with octal escapes for backslashes and the bytes of `special`, which would break
    /// a line or a field. Linux's `seq_path` and `mangle_path` do the same.
    ///
    /// # Errors
    /// Fails as [`Self::push`] does.
    pub fn push_escaped(&mut self, bytes: &[u8], special: &[u8]) -> fmt::Result {
        let mut left = bytes;
        // One turn for each escaped byte.
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

    /// Stops the writing, so that [`Self::finish`] fails with `error`. Returns the error that the
    /// function that writes the text must return.
    pub fn fail(&mut self, error: Errno) -> fmt::Error {
        self.error = Some(error);
        fmt::Error
    }

    /// Returns the text if `written` is `Ok` and nothing failed.
    ///
    /// # Errors
    /// Fails with the error that stopped the writing, and with `ENOMEM`.
    pub fn finish(mut self, written: fmt::Result) -> Result<Made, Errno> {
        if let (Err(_), error) | (Ok(()), error @ Some(_)) = (written, self.error) {
            return Err(error.unwrap_or(Errno::EIO));
        }
        let len = self.len();
        self.full.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.full.push(self.bytes);
        Ok(Made {
            chunks: self.full,
            len,
        })
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes())
    }
}
