//! The locks of one owner on the bytes of one file.
//!
//! As POSIX requires, a new lock replaces those that the same owner had on its bytes. So a lock may
//! split another in two, and adjacent locks of one kind are merged.

use alloc::vec::Vec;

/// The last byte that a file can have. A lock "to the end" extends to it.
pub const LAST_BYTE: u64 = i64::MAX as u64;

/// The most locks of one owner on one file. Linux has no such limit; here it bounds the work under
/// a spin lock.
pub const MAX_RANGES: usize = 1 << 16;

/// The kind of a lock, which says what locks other owners may have on the same bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Other owners may only have shared locks on the same bytes (`F_RDLCK`, `LOCK_SH`).
    Shared,
    /// Other owners may have no locks on these bytes (`F_WRLCK`, `LOCK_EX`).
    Exclusive,
}

/// The error if memory for a lock is short or [`MAX_RANGES`] is reached.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The reason why three numbers of a `struct flock` are no range of bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SpanError {
    /// The range starts before the file.
    BeforeStart,
    /// The range extends beyond [`LAST_BYTE`].
    BeyondEnd,
}

/// A range of bytes of a file: `first..=last`, at least one byte, and `last` at most [`LAST_BYTE`].
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

    /// Returns the range of `length` bytes from `start` on, relative to `base`, which must be at
    /// most [`LAST_BYTE`]. A length of 0 extends to the end. A negative length means the bytes
    /// before the start.
    ///
    /// # Errors
    /// [`SpanError`] if the range leaves the bytes that a file can have.
    pub fn relative(base: u64, start: i64, length: i64) -> Result<Self, SpanError> {
        // Sums of two or three numbers of 64 bits fit 128 bits.
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
        // As on Linux, an error of the start takes precedence.
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

    /// Returns the length of the range for a `struct flock`, which is 0 if the range extends to the
    /// end of the file.
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

/// The creator of a lock, for lists of locks. It has no effect on locking.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The process ID.
    pub pid: u32,
    /// The number of the open file description through which the lock was requested.
    pub via: u64,
}

/// A lock that an owner has on a range of bytes of a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The locked bytes.
    pub span: Span,
    /// Kind of the lock.
    pub kind: Kind,
    /// Creator of the lock.
    pub label: Label,
}

impl Held {
    /// Returns whether the lock excludes a lock of `kind` on `span` by another owner.
    pub fn excludes(&self, span: &Span, kind: Kind) -> bool {
        self.span.overlaps(span) && (self.kind == Kind::Exclusive || kind == Kind::Exclusive)
    }
}

/// Number of locks for which memory is kept when an owner has none.
const SPARE_RANGES: usize = 4;

/// The locks of one owner on one file. They are in ascending order and disjoint, and adjacent locks
/// have different kinds.
#[derive(Debug, Default)]
pub struct Ranges {
    list: Vec<Held>,
}

impl Ranges {
    /// Returns a list without locks.
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// Removes all locks, and keeps some of their memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.list.shrink_to(SPARE_RANGES);
    }

    /// Returns all locks in ascending order.
    pub fn as_slice(&self) -> &[Held] {
        &self.list
    }

    /// Returns the index of the first lock that excludes a lock of `kind` on `span` by another
    /// owner. Returns `None` if no lock excludes it.
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

    /// Locks `span` with the kind `wanted` for the owner of this list, or unlocks it if `wanted` is
    /// `None`. Replaces the owner's earlier locks on these bytes. `label` says who created the
    /// lock. A lock that joins older ones of its kind keeps the label of the first.
    ///
    /// # Errors
    /// [`NoRoom`] if there is no room for the locks; no lock has changed then. Unlocking everything
    /// never fails.
    pub fn set(&mut self, span: Span, wanted: Option<Kind>, label: Label) -> Result<(), NoRoom> {
        // The locks that overlap or touch `span`. No sum exceeds 2^63.
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
                    // The older lock is extended.
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
