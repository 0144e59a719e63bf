//! Arguments and environment on their way to a new program, and how much of them is too much.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Bytes of one string with its NUL; Linux's `MAX_ARG_STRLEN`.
pub const MAX_STRING: usize = 128 << 10;
/// Strings in one vector; Linux's `MAX_ARG_STRINGS`.
pub const MAX_COUNT: usize = 0x7fff_ffff;
/// What is always allowed, in bytes; Linux's `ARG_MAX`.
const MIN_TOTAL: u64 = 128 << 10;
/// What is never exceeded: three quarters of the usual stack, as under Linux.
const MAX_TOTAL: u64 = 6 << 20;
/// Bytes of memory in one piece at most: larger ones are hard to find.
const PIECE: usize = 64 << 10;

/// Bytes that the name of a program and its strings, each with its NUL, may take: a quarter of the
/// stack's limit within bounds, less the pointers to the strings. `None`: there is no room for the
/// pointers.
pub fn room(stack_limit: u64, args: usize, env: usize) -> Option<usize> {
    let total = (stack_limit / 4).clamp(MIN_TOTAL, MAX_TOTAL);
    // A program always has a name. Counts are at most MAX_COUNT: the sum does not overflow.
    let pointers = (args.max(1) + env) * size_of::<u64>();
    let left = usize::try_from(total).ok()?.checked_sub(pointers)?;
    (left > 0).then_some(left)
}

/// Strings for a new program, each with its NUL, in pieces of memory.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    pieces: Vec<Vec<u8>>,
    /// Bytes at the start of the first piece that are no part of it any more.
    skipped: usize,
    bytes: usize,
    count: usize,
}

impl Strings {
    /// Adds a string, which has no NUL.
    ///
    /// # Errors
    /// No memory; what was there stays, with part of the string behind it: drop all of it.
    pub fn push(&mut self, string: &[u8]) -> Result<(), TryReserveError> {
        self.append_bytes(string)?;
        self.append_bytes(&[0])?;
        self.count += 1;
        Ok(())
    }

    fn append_bytes(&mut self, mut bytes: &[u8]) -> Result<(), TryReserveError> {
        // Each turn but the first fills a piece.
        while !bytes.is_empty() {
            let room = self
                .pieces
                .last()
                .map_or(0, |last| PIECE.saturating_sub(last.len()));
            if room == 0 {
                self.pieces.try_reserve(1)?;
                self.pieces.push(Vec::new());
            }
            let Some(last) = self.pieces.last_mut() else {
                return Ok(());
            };
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - last.len()));
            last.try_reserve(now.len())?;
            last.extend_from_slice(now);
            self.bytes += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Adds all strings of another one.
    ///
    /// # Errors
    /// No memory; both are as before then.
    pub fn append(&mut self, other: &mut Self) -> Result<(), TryReserveError> {
        self.pieces.try_reserve(other.pieces.len())?;
        if let Some(first) = other.pieces.first_mut() {
            first.drain(..other.skipped);
        }
        self.pieces.append(&mut other.pieces);
        self.bytes += other.bytes;
        self.count += other.count;
        *other = Self::default();
        Ok(())
    }

    /// Drops the first string.
    pub fn drop_first(&mut self) {
        // Each turn but the last drops a piece.
        while let Some(first) = self.pieces.first() {
            let rest = &first[self.skipped..];
            if let Some(end) = rest.iter().position(|&byte| byte == 0) {
                self.skipped += end + 1;
                self.bytes -= end + 1;
                self.count -= 1;
                if self.skipped == first.len() {
                    self.pieces.remove(0);
                    self.skipped = 0;
                }
                return;
            }
            self.bytes -= rest.len();
            self.skipped = 0;
            self.pieces.remove(0);
        }
    }

    /// The first string, or as much of it as lies in one piece.
    pub fn first(&self) -> &[u8] {
        let string = self.pieces().next().unwrap_or_default();
        let end = string.iter().position(|&byte| byte == 0);
        &string[..end.unwrap_or(string.len())]
    }

    /// How many strings there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Their bytes, with a NUL for each.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Their bytes one after the other, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let skips = core::iter::once(self.skipped).chain(core::iter::repeat(0));
        let pieces = self.pieces.iter().zip(skips);
        pieces.map(|(piece, skip)| &piece[skip..])
    }

    /// Where each string starts when the first one is at `base`.
    pub fn addresses(&self, base: u64) -> impl Iterator<Item = u64> {
        let bytes = self.pieces().flatten();
        let ends = (base + 1..).zip(bytes).filter(|(_, byte)| **byte == 0);
        let starts = core::iter::once(base).chain(ends.map(|(after, _)| after));
        starts.take(self.count)
    }
}
