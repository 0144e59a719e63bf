//! The last lines of a log, in memory that does not grow.
//!
//! Places are counted from the log's first byte on and never come back, so a reader notices what it has missed.

/// So many bytes of lines; new ones take the place of the oldest, which go as whole lines.
#[derive(Debug)]
pub struct LogRing<const BYTES: usize> {
    bytes: [u8; BYTES],
    /// Where the oldest line begins.
    start: u64,
    /// Behind the newest byte.
    end: u64,
}

impl<const BYTES: usize> LogRing<BYTES> {
    /// No line.
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

    /// The place behind the line that begins at a place, or the log's end.
    fn next_line(&self, place: u64) -> u64 {
        (place..self.end)
            .find(|&at| self.byte(at) == b'\n')
            .map_or(self.end, |newline| newline + 1)
    }

    /// Adds a part of a line.
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

    /// Behind the newest byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The place itself, or the oldest that there is.
    pub fn still(&self, place: u64) -> u64 {
        place.max(self.start)
    }

    /// Where the newest lines from a place on begin that fit into so many bytes.
    pub fn newest(&self, place: u64, room: u64) -> u64 {
        let mut from = self.still(place);
        while self.end - from > room {
            from = self.next_line(from);
        }
        from
    }

    /// Copies what stands from a place on, which it moves on; says how many bytes.
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
