//! Which bytes of one file one owner has locked, and how.
//!
//! Kept as POSIX asks for it: a new lock replaces what the same owner had of those bytes, so a lock
//! may split another in two, and neighbours of one kind are one lock.

use alloc::vec::Vec;

/// The last byte that a file can have, and that a lock "to the end" reaches.
pub const LAST_BYTE: u64 = i64::MAX as u64;

/// Locks that one owner may have in one file. Linux has no such number; here it bounds the work
/// that is done under a spin lock.
pub const MAX_RANGES: usize = 1 << 16;

/// What a lock keeps others from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Others may have shared locks of the same bytes (`F_RDLCK`, `LOCK_SH`).
    Shared,
    /// Nobody else has a lock of these bytes (`F_WRLCK`, `LOCK_EX`).
    Exclusive,
}

/// There is no memory for a lock, or it would be one too many.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Why three numbers of a `struct flock` are no range of bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SpanError {
    /// It starts before the file does.
    BeforeStart,
    /// It goes beyond [`LAST_BYTE`].
    BeyondEnd,
}

/// The bytes `first..=last`, at least one; `last` is at most [`LAST_BYTE`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
}

impl Span {
    /// Every byte of a file.
    pub const ALL: Self = Self {
        first: 0,
        last: LAST_BYTE,
    };

    /// `length` bytes from `start` on, counted from `base`, which is at most [`LAST_BYTE`]. A
    /// length of 0 is all to the end, a negative one the bytes before the start.
    ///
    /// # Errors
    /// As [`SpanError`] says.
    pub fn relative(base: u64, start: i64, length: i64) -> Result<Self, SpanError> {
        // Sums of two or three numbers of 64 bits do not leave 128 bits.
        let start = i128::from(base) + i128::from(start);
        let end = start + i128::from(length);
        let last_byte = i128::from(LAST_BYTE);
        if start > last_byte {
            return Err(SpanError::BeyondEnd);
        }
        let (first, last) = match length {
            0 => (start, last_byte),
            1.. => (start, end - 1),
            _ => (end, start - 1),
        };
        // As Linux: of two errors the one of the start counts.
        if start < 0 || first < 0 {
            return Err(SpanError::BeforeStart);
        }
        if last > last_byte {
            return Err(SpanError::BeyondEnd);
        }
        match (u64::try_from(first), u64::try_from(last)) {
            (Ok(first), Ok(last)) => Ok(Self { first, last }),
            _ => Err(SpanError::BeforeStart),
        }
    }

    /// The length as a `struct flock` has it: 0 when it reaches to the end.
    pub fn length(&self) -> u64 {
        if self.last == LAST_BYTE {
            0
        } else {
            self.last - self.first + 1
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Who placed a lock. It is shown to those who ask, and decides nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The process.
    pub pid: u32,
    /// The open file by which it did.
    pub via: u64,
}

/// One lock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The bytes.
    pub span: Span,
    /// How they are locked.
    pub kind: Kind,
    /// Who did it.
    pub label: Label,
}

impl Held {
    /// Whether a lock of another owner cannot stand beside this one.
    pub fn excludes(&self, span: &Span, kind: Kind) -> bool {
        self.span.overlaps(span) && (self.kind == Kind::Exclusive || kind == Kind::Exclusive)
    }
}

/// Room that is kept for locks of an owner that has none.
const SPARE_RANGES: usize = 4;

/// The locks of one owner in one file: ascending, apart from each other, and neighbours of one kind
/// are never adjacent.
#[derive(Debug, Default)]
pub struct Ranges {
    list: Vec<Held>,
}

impl Ranges {
    /// None.
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// Forgets all of them, and keeps some of their memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.list.shrink_to(SPARE_RANGES);
    }

    /// All of them, ascending.
    pub fn as_slice(&self) -> &[Held] {
        &self.list
    }

    /// The place of the first lock that excludes another owner's of this kind.
    pub fn conflict(&self, span: &Span, kind: Kind) -> Option<usize> {
        let from = self
            .list
            .partition_point(|held| held.span.last < span.first);
        let overlapping = self.list[from..]
            .iter()
            .take_while(|held| held.span.first <= span.last);
        let at = overlapping
            .into_iter()
            .position(|held| held.excludes(span, kind))?;
        Some(from + at)
    }

    /// Locks `span` as `wanted` says, or unlocks it with `None`, whatever the owner had there.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing has changed then. Unlocking everything never fails.
    pub fn set(&mut self, span: Span, wanted: Option<Kind>, label: Label) -> Result<(), NoRoom> {
        // All that overlaps, and what touches at either side. No sum exceeds 2^63.
        let from = self
            .list
            .partition_point(|held| held.span.last + 1 < span.first);
        let count = self.list[from..].partition_point(|held| held.span.first <= span.last + 1);
        let to = from + count;

        let (mut left, mut right) = (None, None);
        let mut new = wanted.map(|kind| Held { span, kind, label });
        let mut joined = false;
        for held in &self.list[from..to] {
            if let Some(new) = new.as_mut().filter(|new| new.kind == held.kind) {
                new.span.first = new.span.first.min(held.span.first);
                new.span.last = new.span.last.max(held.span.last);
                if !joined {
                    // The older lock grows.
                    new.label = held.label;
                    joined = true;
                }
                continue;
            }
            if held.span.first < span.first {
                let mut rest = *held;
                rest.span.last = held.span.last.min(span.first - 1);
                left = Some(rest);
            }
            if held.span.last > span.last {
                let mut rest = *held;
                rest.span.first = held.span.first.max(span.last + 1);
                right = Some(rest);
            }
        }

        let pieces = [left, new, right];
        let kept = pieces.iter().flatten().count();
        if kept > count {
            let more = kept - count;
            if self.list.len() + more > MAX_RANGES {
                return Err(NoRoom);
            }
            self.list.try_reserve(more).map_err(|_| NoRoom)?;
        }
        let mut at = from;
        for piece in pieces.into_iter().flatten() {
            if at < to {
                self.list[at] = piece;
            } else {
                self.list.insert(at, piece);
            }
            at += 1;
        }
        if at < to {
            self.list.drain(at..to);
        }
        Ok(())
    }
}
