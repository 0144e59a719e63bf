//! The arguments and the environment of a new program, and the limit of their size.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// The most bytes of one string with its NUL (Linux's `MAX_ARG_STRLEN`).
pub const MAX_STRING: usize = 128 << 10;
/// The most strings in one vector (Linux's `MAX_ARG_STRINGS`).
pub const MAX_COUNT: usize = 0x7fff_ffff;
/// The total size in bytes that is always allowed, Linux's `ARG_MAX`.
const MIN_TOTAL: u64 = 128 << 10;
/// The total size in bytes that is never exceeded: three quarters of the usual stack, as on Linux.
const MAX_TOTAL: u64 = 6 << 20;
/// The most bytes of one piece of memory: larger contiguous allocations often fail.
const PIECE: usize = 64 << 10;

/// Returns the number of bytes that the name of a program and its strings, each with its NUL, may
/// take. There are `args` arguments and `env` strings of the environment. The room is a quarter of
/// `stack_limit` in bytes, within bounds, less the pointers to the strings. Returns `None` if the
/// pointers alone leave no room.
pub fn room(stack_limit: u64, args: usize, env: usize) -> Option<usize> {
    let total = (stack_limit / 4).clamp(MIN_TOTAL, MAX_TOTAL);
    // A program always has a name. Counts are at most MAX_COUNT, so the sum does not overflow.
    let pointers = (args.max(1) + env) * size_of::<u64>();
    let left = usize::try_from(total).ok()?.checked_sub(pointers)?;
    (left > 0).then_some(left)
}

/// The argument or environment strings of a new program, each with its NUL. They are stored one
/// after the other in separately allocated pieces of memory.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    pieces: Vec<Vec<u8>>,
    /// Number of bytes at the start of the first piece that belong to dropped strings.
    skipped: usize,
    bytes: usize,
    count: usize,
}

impl Strings {
    /// Adds `string`, which must contain no NUL.
    ///
    /// # Errors
    /// [`TryReserveError`] if memory is short. The earlier strings stay, followed by a part of the
    /// new one. The caller must then drop all strings.
    pub fn push(&mut self, string: &[u8]) -> Result<(), TryReserveError> {
        self.append_bytes(string)?;
        self.append_bytes(&[0])?;
        self.count += 1;
        Ok(())
    }

    fn append_bytes(&mut self, mut bytes: &[u8]) -> Result<(), TryReserveError> {
        // Each iteration but the first begins a new piece.
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

    /// Moves all strings of `other` behind those of `self`.
    ///
    /// # Errors
    /// [`TryReserveError`] if memory is short. Neither value has changed then.
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

    /// Removes the first string. Does nothing if there are no strings.
    pub fn drop_first(&mut self) {
        // Each iteration but the last drops a piece.
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

    /// Returns the first string without its NUL, or the part of it that is in one piece. Returns an
    /// empty slice if there are no strings.
    pub fn first(&self) -> &[u8] {
        let string = self.pieces().next().unwrap_or_default();
        let end = string.iter().position(|&byte| byte == 0);
        &string[..end.unwrap_or(string.len())]
    }

    /// Returns the number of strings.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of bytes of all strings, including their NULs.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of all strings one after the other, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let skips = core::iter::once(self.skipped).chain(core::iter::repeat(0));
        let pieces = self.pieces.iter().zip(skips);
        pieces.map(|(piece, skip)| &piece[skip..])
    }

    /// Returns the address of each string if the first one is at `base`.
    pub fn addresses(&self, base: u64) -> impl Iterator<Item = u64> {
        let bytes = self.pieces().flatten();
        let ends = (base + 1..).zip(bytes).filter(|(_, byte)| **byte == 0);
        let starts = core::iter::once(base).chain(ends.map(|(after, _)| after));
        starts.take(self.count)
    }
}
