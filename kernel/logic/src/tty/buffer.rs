//! The typed bytes that were not read yet: whole lines, and the line being typed.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The most bytes that wait for the reader, which is also the length of the longest line.
pub(super) const CAPACITY: usize = 4096;
/// Number of words of the marks, which have one bit for each place.
const WORDS: usize = CAPACITY / 64;

/// A ring of bytes, in which the ends of lines are marked. Positions count from the terminal's
/// beginning.
///
/// `read <= lines <= end` in canonical mode, and `end - read <= CAPACITY` always.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Box<[u8]>,
    marks: [u64; WORDS],
    /// Position after the last byte.
    end: u64,
    /// Position after the last whole line.
    lines: u64,
    /// Position of the next byte to read.
    read: u64,
    /// Number of lines that ended since the last [`Self::take_ended`].
    ended: u32,
}

/// The error if memory for the buffer of a terminal is short.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl Buffer {
    /// Returns an empty buffer. Fails with [`NoMemory`] if memory is short.
    pub(super) fn new() -> Result<Self, NoMemory> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(CAPACITY).map_err(|_| NoMemory)?;
        bytes.resize(CAPACITY, 0);
        Ok(Self {
            bytes: bytes.into_boxed_slice(),
            marks: [0; WORDS],
            end: 0,
            lines: 0,
            read: 0,
            ended: 0,
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder below the capacity"
    )]
    fn place(position: u64) -> usize {
        (position % CAPACITY as u64) as usize
    }

    fn at(&self, position: u64) -> u8 {
        self.bytes[Self::place(position)]
    }

    fn is_marked(&self, position: u64) -> bool {
        let place = Self::place(position);
        self.marks[place / 64] & 1 << (place % 64) != 0
    }

    fn mark(&mut self, position: u64, marked: bool) {
        let place = Self::place(position);
        let bit = 1 << (place % 64);
        if marked {
            self.marks[place / 64] |= bit;
        } else {
            self.marks[place / 64] &= !bit;
        }
    }

    /// Returns the number of bytes that wait, including the line being typed.
    #[expect(clippy::cast_possible_truncation, reason = "at most the capacity")]
    pub(super) fn len(&self) -> usize {
        (self.end - self.read) as usize
    }

    /// Returns whether a whole line waits.
    pub(super) fn has_line(&self) -> bool {
        self.lines != self.read
    }

    /// Returns whether the line being typed is empty.
    pub(super) fn line_is_empty(&self) -> bool {
        self.end == self.lines
    }

    /// Returns the bytes of the line being typed, first byte first.
    pub(super) fn line(&self) -> impl DoubleEndedIterator<Item = u8> + '_ {
        (self.lines..self.end).map(|position| self.at(position))
    }

    /// Returns byte `n` of the line being typed, from 0 on. Returns `None` if the line is not that
    /// long.
    pub(super) fn nth_of_line(&self, n: u64) -> Option<u8> {
        let position = self.lines + n;
        (position < self.end).then(|| self.at(position))
    }

    /// Returns the last byte of the line being typed, or `None` if the line is empty.
    pub(super) fn last(&self) -> Option<u8> {
        (!self.line_is_empty()).then(|| self.at(self.end - 1))
    }

    /// Removes and returns the last byte of the line being typed. Returns `None` if the line is
    /// empty.
    pub(super) fn pop(&mut self) -> Option<u8> {
        let last = self.last()?;
        self.end -= 1;
        Some(last)
    }

    /// Discards the line being typed.
    pub(super) fn clear_line(&mut self) {
        self.end = self.lines;
    }

    /// Adds the byte `c` at the end. If the buffer is full, `c` replaces the last byte.
    pub(super) fn push(&mut self, c: u8) {
        if self.len() == CAPACITY {
            self.end -= 1;
        }
        let place = Self::place(self.end);
        self.bytes[place] = c;
        self.mark(self.end, false);
        self.end += 1;
    }

    /// Ends the line being typed with the byte `c`. The reader gets `c` as the last byte of the
    /// line, unless `c` is 0, which marks an end without a byte (EOF).
    pub(super) fn end_line(&mut self, c: u8) {
        self.push(c);
        self.mark(self.end - 1, true);
        self.lines = self.end;
        self.ended = self.ended.saturating_add(1);
    }

    /// Returns the number of lines that ended since the last call.
    pub(super) fn take_ended(&mut self) -> u32 {
        core::mem::take(&mut self.ended)
    }

    /// Discards all bytes.
    pub(super) fn clear(&mut self) {
        self.marks = [0; WORDS];
        (self.end, self.lines, self.read) = (0, 0, 0);
    }

    /// Switches canonical mode on if `canonical`, else off. When it is switched on, all waiting
    /// bytes become one line.
    pub(super) fn set_canonical(&mut self, canonical: bool) {
        self.marks = [0; WORDS];
        if canonical && self.len() > 0 {
            self.mark(self.end - 1, true);
            self.lines = self.end;
        } else if canonical {
            self.lines = self.end;
        } else {
            self.lines = self.read;
        }
    }

    /// Returns the number of bytes that a reader of lines could get. Ends of lines that are read as
    /// no byte do not count.
    pub(super) fn count_of_lines(&self) -> usize {
        (self.read..self.lines)
            .filter(|&position| !(self.is_marked(position) && self.at(position) == 0))
            .count()
    }

    /// Reads a line into `into`, or its beginning if the line is longer. Returns the number of
    /// bytes read, or `None` if no line waits. If the next byte then is an end that is read as no
    /// byte (EOF), it is consumed as well.
    pub(super) fn read_line(&mut self, into: &mut [u8]) -> Option<usize> {
        if !self.has_line() {
            return None;
        }
        let mut count = 0;
        while self.read < self.lines {
            let (c, ends) = (self.at(self.read), self.is_marked(self.read));
            if ends && c == 0 {
                self.mark(self.read, false);
                self.read += 1;
                break;
            }
            let Some(place) = into.get_mut(count) else {
                break;
            };
            *place = c;
            count += 1;
            self.mark(self.read, false);
            self.read += 1;
            if ends {
                break;
            }
        }
        Some(count)
    }

    /// Reads bytes into `into`, regardless of lines. Returns their number.
    pub(super) fn read_bytes(&mut self, into: &mut [u8]) -> usize {
        let count = self.len().min(into.len());
        for place in &mut into[..count] {
            *place = self.at(self.read);
            self.read += 1;
        }
        // Lines that were read past no longer count.
        self.lines = self.lines.max(self.read);
        count
    }
}
