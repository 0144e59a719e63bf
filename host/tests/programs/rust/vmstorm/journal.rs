//! The operations on files in one round, and the file contents that they allow.
//!
//! Each operation has the time of the storm's clock before and after it. Operations that overlap in
//! time may have happened in either order. Of two that do not overlap, the later one counts.

use crate::control::{self, ACTORS};
use crate::sys::{PAGE, PAGE_WORDS, ZEROES};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// The largest number of operations on files of one actor in one round.
pub const RECORDS: usize = 128;

/// The effect of an operation on its bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The bytes are zero.
    Clear,
    /// The file is cut at the start of the bytes, or extended with zeroes up to there.
    Cut,
    /// Each word is the record's tag plus the number of the word, stored through a mapping.
    Store,
    /// The same with a system call, which may extend the file.
    Write,
    /// The actor saw that the file ended at the start of the bytes, and then extended it. So the
    /// cut there came before the end of this record.
    Sight,
}

/// One operation on a file.
#[derive(Copy, Clone, Debug)]
pub struct Record {
    pub file: usize,
    pub kind: Kind,
    /// The bytes that were certainly changed.
    pub bytes: Span,
    /// The end of the bytes that may have been changed.
    pub perhaps_to: u64,
    /// The value of the written words, without their number.
    pub tag: u64,
    pub start: u64,
    pub end: u64,
}

/// A range of bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub start: u64,
    pub end: u64,
}

impl Span {
    fn holds(self, other: &Range<u64>) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// The records of one actor.
#[derive(Debug)]
pub struct Journal {
    length: AtomicU32,
    records: UnsafeCell<[Record; RECORDS]>,
}

impl Journal {
    /// Deletes the records of the last round.
    pub fn clear(&self) {
        // Relaxed: a barrier follows.
        self.length.store(0, Ordering::Relaxed);
    }

    /// Returns the number of records, which is the index of the next one.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::Relaxed) as usize
    }

    /// Adds a record. Only the actor itself and a child that it waits for may call this.
    pub fn add(&self, record: Record) {
        let length = self.len();
        assert!(length < RECORDS, "the plan of a round leaves room");
        // SAFETY: no thread reads beyond `length`, and only one writes.
        unsafe { (&mut *self.records.get())[length] = record };
        // Release: pairs with the Acquire in `all`.
        self.length.store(length as u32 + 1, Ordering::Release);
    }

    fn all(&self) -> impl Iterator<Item = Record> {
        let length = self.length.load(Ordering::Acquire) as usize;
        // SAFETY: records below the length do not change before the next round.
        let records = unsafe { &(&*self.records.get())[..length] };
        records.iter().copied()
    }
}

/// Records the end of an operation that changed a file.
pub fn note(actor: usize, record: Record) {
    control::desk(actor).journal.add(record);
}

/// The operations on one file in this round.
#[derive(Debug)]
pub struct History(Vec<Record>);

/// A word with a value that is not possible.
#[derive(Debug)]
pub struct Wrong {
    pub word: u64,
    pub found: u64,
    pub why: String,
}

impl History {
    /// Returns the operations on a file that the actors have recorded.
    pub fn of(file: usize, actors: usize) -> Self {
        let all = (0..actors.min(ACTORS)).flat_map(|actor| control::desk(actor).journal.all());
        let (sights, mut deeds): (Vec<_>, Vec<_>) = all
            .filter(|record| record.file == file)
            .partition(|record| record.kind == Kind::Sight);
        for sight in sights {
            let size = sight.bytes.start;
            let grew = |r: &Record| r.kind == Kind::Write && r.bytes.end == size;
            if deeds.iter().any(grew) {
                continue;
            }
            let mut cuts = deeds
                .iter_mut()
                .filter(|r| r.kind == Kind::Cut && r.bytes.start == size);
            if let (Some(cut), None) = (cuts.next(), cuts.next()) {
                cut.end = cut.end.min(sight.end);
            }
        }
        // A later cut or hole replaces an earlier one after its start. But if the earlier one ended
        // the file within a page, mappings could store beyond that end.
        let outdone = |old: &Record| {
            is_clear(old.kind)
                && old.bytes.start.is_multiple_of(PAGE)
                && deeds.iter().any(|new| {
                    new.kind == Kind::Cut
                        && new.start > old.end
                        && new.bytes.start <= old.bytes.start
                })
        };
        let kept = deeds.iter().filter(|&r| !outdone(r)).copied();
        Self(kept.collect())
    }

    /// Returns whether there was no operation.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a cut may have removed a page.
    pub fn may_have_cut(&self, page: u64) -> bool {
        self.0
            .iter()
            .any(|r| r.kind == Kind::Cut && r.bytes.start <= page * PAGE)
    }

    /// Returns whether the file may now have `size` bytes if it had `before` bytes at the start of
    /// the round.
    pub fn allows_size(&self, size: u64, before: u64) -> bool {
        let cuts = || self.0.iter().filter(|r| r.kind == Kind::Cut);
        let writes = || self.0.iter().filter(|r| r.kind == Kind::Write);
        let last = |r: &Record| !cuts().any(|cut| cut.start > r.end);
        let at_least = writes()
            .filter(|w| cuts().all(|cut| cut.end < w.start))
            .map(|w| w.bytes.end);
        size >= at_least.max().unwrap_or(0)
            && (cuts().any(|cut| cut.bytes.start == size && last(cut))
                || writes().any(|write| write.bytes.end == size && last(write))
                || size == before && cuts().next().is_none())
    }

    /// Checks the words of one page. `before` is the content at the start of the round, and the
    /// file has been cut to `size` bytes since. Fails with the first wrong word.
    pub fn check(&self, page: u64, words: &[u64], before: &[u64], size: u64) -> Result<(), Wrong> {
        let range = page * PAGE..(page + 1) * PAGE;
        let here: Vec<&Record> = self
            .0
            .iter()
            .filter(|r| r.bytes.start < range.end && r.perhaps_to > range.start)
            .collect();
        let mut edges = vec![range.start, range.end, size.clamp(range.start, range.end)];
        for record in &here {
            for edge in [record.bytes.start, record.bytes.end, record.perhaps_to] {
                edges.push(edge.clamp(range.start, range.end));
            }
        }
        edges.sort_unstable();
        edges.dedup();
        let first = page * PAGE_WORDS as u64;
        for edge in edges.windows(2) {
            let part = edge[0]..edge[1];
            let legal = Legal::of(&here, &part, size);
            let inner = (part.start / 8 - first) as usize..(part.end / 8 - first) as usize;
            if legal.takes(&words[inner.clone()], &before[inner.clone()]) {
                continue;
            }
            for index in inner {
                let (word, found) = (first + index as u64, words[index]);
                if let Some(why) = legal.reject(found, word, before[index]) {
                    let why = format!("{why}; here are {here:?}");
                    return Err(Wrong { word, found, why });
                }
            }
        }
        Ok(())
    }
}

/// The possible values of words that all operations treated alike.
#[derive(Debug, Default)]
struct Legal {
    /// The value at the start of the round.
    before: bool,
    zero: bool,
    tags: Vec<u64>,
}

impl Legal {
    fn of(here: &[&Record], part: &Range<u64>, size: u64) -> Self {
        let certain = || here.iter().filter(|r| r.bytes.holds(part));
        // Mappings can store beyond the end of a file in its last page. A cut that extends the file
        // may keep or clear these bytes. It may have extended the file if another operation ended
        // the file in this page.
        let ended_by = |other: &Record| {
            let end = match other.kind {
                Kind::Cut => other.bytes.start,
                _ => other.bytes.end,
            };
            matches!(other.kind, Kind::Cut | Kind::Write)
                && end / PAGE == part.start / PAGE
                && end <= part.start
        };
        let is_cut = certain().any(|r| r.kind == Kind::Cut);
        let may_keep = |cut: &Record| {
            cut.kind == Kind::Cut && here.iter().any(|r| r.start != cut.start && ended_by(r))
        };
        let mut legal = Self {
            before: certain().next().is_none(),
            zero: part.start >= size || is_cut && here.iter().any(|r| ended_by(r)),
            tags: Vec::new(),
        };
        for record in here {
            let later = || certain().filter(|later| later.start > record.end);
            if is_clear(record.kind) {
                let written = later().any(|later| !is_clear(later.kind));
                legal.zero |= record.bytes.holds(part) && !written;
            } else {
                let perhaps = Span {
                    end: record.perhaps_to,
                    ..record.bytes
                };
                let gone = later().any(|later| !is_clear(later.kind) || !may_keep(later));
                if perhaps.holds(part) && !gone {
                    legal.tags.push(record.tag);
                }
            }
        }
        legal
    }

    /// The fast check for the most common contents: all zero, or all unchanged. Returns `false` if
    /// a slower check must decide.
    fn takes(&self, words: &[u64], before: &[u64]) -> bool {
        self.zero && words == &ZEROES[..words.len()] || self.before && words == before
    }

    /// Returns why a word cannot have its value, or `None` if it can.
    fn reject(&self, found: u64, number: u64, before: u64) -> Option<String> {
        let legal = |value: u64| {
            self.zero && value == 0
                || self.before && value == before
                || self.tags.iter().any(|tag| tag | number == value)
        };
        if legal(found) {
            return None;
        }
        // The bytes of a word need not change together.
        let mixed = (0..8).all(|byte| {
            let of = |value: u64| value.to_le_bytes()[byte];
            let found = of(found);
            self.zero && found == 0
                || self.before && found == of(before)
                || self.tags.iter().any(|tag| of(tag | number) == found)
        });
        if mixed {
            return None;
        }
        let mut may = Vec::new();
        if self.zero {
            may.push("0".to_owned());
        }
        if self.before {
            may.push(format!("{before:#x} as before"));
        }
        may.extend(self.tags.iter().map(|tag| format!("{:#x}", tag | number)));
        Some(format!(
            "it may be {} and was {before:#x}",
            may.join(" or ")
        ))
    }
}

fn is_clear(kind: Kind) -> bool {
    matches!(kind, Kind::Clear | Kind::Cut)
}
