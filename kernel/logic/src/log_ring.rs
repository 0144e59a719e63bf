//! The last lines of a log, in memory of a fixed size.
//!
//! Places count from the log's first byte on and are never reused, so a reader notices that it has
//! missed lines.

/// A ring of `BYTES` bytes of lines. New lines overwrite the oldest lines, which are dropped whole.
/// The place of a byte is the number of bytes that were added before it.
#[derive(Debug)]
pub struct LogRing<const BYTES: usize> {
    bytes: [u8; BYTES],
    /// Place of the oldest line.
    start: u64,
    /// Place after the newest byte.
    end: u64,
}

impl<const BYTES: usize> LogRing<BYTES> {
    /// Returns an empty ring.
    pub const fn new() -> Self {
        Self {
            bytes: [0; BYTES],
            start: 0,
            end: 0,
        }
    }

    fn byte(&self, place: u64) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "below BYTES")]
        self.bytes[(place % BYTES as u64) as usize]
    }

    /// Returns the place after the line that begins at `place`, or the log's end.
    fn next_line(&self, place: u64) -> u64 {
        (place..self.end)
            .find(|&at| self.byte(at) == b'\n')
            .map_or(self.end, |newline| newline + 1)
    }

    /// Adds `part`, the bytes of a part of a line. If the ring is full, the oldest lines are
    /// dropped.
    pub fn push(&mut self, part: &[u8]) {
        for &byte in part {
            if self.end - self.start == BYTES as u64 {
                self.start = self.next_line(self.start);
            }
            #[expect(clippy::cast_possible_truncation, reason = "below BYTES")]
            let place = (self.end % BYTES as u64) as usize;
            self.bytes[place] = byte;
            self.end += 1;
        }
    }

    /// Returns the place after the newest byte, which is the number of bytes ever added.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns `place`, or the place of the oldest line in the ring if the byte at `place` was
    /// overwritten.
    pub fn still(&self, place: u64) -> u64 {
        place.max(self.start)
    }

    /// Returns the place from which to read the newest lines into `room` bytes. It is `place`, or
    /// the beginning of the first later line from which on all lines fit and are still in the ring.
    pub fn newest(&self, place: u64, room: u64) -> u64 {
        let mut from = self.still(place);
        while self.end - from > room {
            from = self.next_line(from);
        }
        from
    }

    /// Copies bytes from `place` on into `to` and advances `place` past them. If `place` is before
    /// the oldest line, the copy begins at the oldest line. Returns the number of bytes copied.
    pub fn read(&self, place: &mut u64, to: &mut [u8]) -> usize {
        *place = self.still(*place);
        let mut count = 0;
        for byte in to {
            if *place >= self.end {
                break;
            }
            *byte = self.byte(*place);
            *place += 1;
            count += 1;
        }
        count
    }
}

impl<const BYTES: usize> Default for LogRing<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}
