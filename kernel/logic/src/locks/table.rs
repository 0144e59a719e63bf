//! All locks of all files, and who waits for one.
//!
//! A lock that comes free is handed over: whoever lets go grants what has become possible to those
//! who wait, the longest first, so nobody wakes to find that another was faster. A newcomer gets
//! what nobody holds against it, also when others wait, as under Linux.

use super::ranges::{Held, Kind, Label, NoRoom, Ranges, Span};
use crate::errno::Errno;
use alloc::vec::Vec;

/// Lists that files are spread over.
const BUCKETS: usize = 256;
/// Owners of locks in one file; each is looked at when one more wants a lock.
const MAX_OWNERS: usize = 1 << 16;
/// Room that is kept for owners of locks in the idle entry.
const SPARE_HOLDERS: usize = 4;
/// Waiting requests and lock owners that one search for a deadlock looks at; one that is larger
/// goes undetected. Linux gives up after ten processes.
const MAX_STEPS: usize = 1 << 18;

/// Which file: what nodes of the tree are told apart by.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FileKey {
    /// Number of the file system.
    pub device: u64,
    /// Number of the file in it.
    pub inode: u64,
}

/// The two worlds of locks, which do not know of each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum World {
    /// `flock`: always the whole file.
    Whole,
    /// `fcntl`: ranges of bytes.
    Ranges,
}

/// What is locked: one file in one world.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The file.
    pub file: FileKey,
    /// The world.
    pub world: World,
}

/// Whose a lock is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The processes that share this table of descriptors (POSIX locks).
    Files(u64),
    /// Whoever has this open file (`flock`, `F_OFD_*`).
    Description(u64),
}

/// A lock that somebody wants.
#[derive(Copy, Clone, Debug)]
pub struct Request {
    /// For whom.
    pub owner: Owner,
    /// Of which bytes.
    pub span: Span,
    /// How.
    pub kind: Kind,
    /// Who asks.
    pub label: Label,
}

/// How a request ended that was not refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lock is held.
    Granted,
    /// It will be granted; the number is for [`Table::cancel`].
    Waiting(u64),
}

/// Why a request was refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Somebody holds a lock against it, and it was not to wait.
    Conflict,
    /// To wait for it would be to wait for oneself.
    Deadlock,
    /// There is no room for it.
    NoRoom,
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Conflict => Self::EAGAIN,
            Refused::Deadlock => Self::EDEADLK,
            Refused::NoRoom => Self::ENOLCK,
        }
    }
}

/// A lock as it is shown.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Counts the locks that are held. A request that waits has the number of the first lock that
    /// it waits for.
    pub number: usize,
    /// Whether it waits.
    pub waits: bool,
    /// What is locked.
    pub subject: Subject,
    /// Whose it is.
    pub owner: Owner,
    /// The lock.
    pub held: Held,
}

/// One owner's locks of one subject.
#[derive(Debug)]
struct Holder {
    owner: Owner,
    ranges: Ranges,
}

/// A subject of which something is locked.
#[derive(Debug)]
struct Entry {
    subject: Subject,
    /// In the order of their first locks.
    holders: Vec<Holder>,
    /// Requests that wait for it.
    waiting: usize,
    /// Empty: the memory of a holder that has gone, for the next one.
    spare: Ranges,
}

impl Entry {
    /// Of each owner that has a lock against a request the first one: whose it is, and its place
    /// there.
    fn conflicts(&self, request: &Request) -> impl Iterator<Item = (&Holder, usize)> {
        let Request {
            owner, span, kind, ..
        } = *request;
        let others = self
            .holders
            .iter()
            .filter(move |other| other.owner != owner);
        others.filter_map(move |other| Some((other, other.ranges.conflict(&span, kind)?)))
    }

    /// Whether somebody has a lock against a request.
    fn keeps_from(&self, request: &Request) -> bool {
        self.conflicts(request).next().is_some()
    }

    fn place_of(&self, owner: Owner) -> Option<usize> {
        self.holders.iter().position(|holder| holder.owner == owner)
    }

    /// Gives the owner its lock, which nobody holds anything against.
    fn grant(&mut self, request: &Request) -> Result<(), NoRoom> {
        let place = match self.place_of(request.owner) {
            Some(place) => place,
            None => {
                if self.holders.len() == MAX_OWNERS {
                    return Err(NoRoom);
                }
                self.holders.try_reserve(1).map_err(|_| NoRoom)?;
                self.holders.push(Holder {
                    owner: request.owner,
                    ranges: core::mem::take(&mut self.spare),
                });
                self.holders.len() - 1
            }
        };
        let ranges = &mut self.holders[place].ranges;
        let result = ranges.set(request.span, Some(request.kind), request.label);
        if ranges.as_slice().is_empty() {
            self.remove(place);
        }
        result
    }

    /// Takes everything from an owner. Returns whether it had anything.
    fn take_all(&mut self, owner: Owner) -> bool {
        let place = self.place_of(owner);
        place.map(|place| self.remove(place)).is_some()
    }

    /// Takes everything from the holder at `place`.
    fn remove(&mut self, place: usize) {
        let mut ranges = self.holders.remove(place).ranges;
        ranges.clear();
        self.spare = ranges;
    }

    /// Returns whether it says nothing.
    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.waiting == 0
    }

    fn lines(&self) -> impl Iterator<Item = (Owner, &Held)> {
        self.holders.iter().flat_map(|holder| {
            let held = holder.ranges.as_slice().iter();
            held.map(move |held| (holder.owner, held))
        })
    }
}

/// A request that waits. `T` is how its maker is told of the end.
#[derive(Debug)]
struct Waiter<T> {
    number: u64,
    subject: Subject,
    request: Request,
    ticket: T,
}

/// Every lock there is.
#[derive(Debug)]
pub struct Table<T> {
    buckets: [Vec<Entry>; BUCKETS],
    /// Whose entry says nothing and is kept, the last one of these. So a file that is locked and
    /// unlocked in turn needs no new memory each time.
    idle: Option<Subject>,
    /// Those who wait longest first.
    waiters: Vec<Waiter<T>>,
    next_number: u64,
}

impl<T> Table<T> {
    /// No locks.
    pub const fn new() -> Self {
        Self {
            buckets: [const { Vec::new() }; BUCKETS],
            idle: None,
            waiters: Vec::new(),
            next_number: 0,
        }
    }

    /// Gives `request` its lock of `subject`, or, where others hold a lock against it and there is
    /// a ticket, puts it with those who wait. `settle` is called with the ticket of each who waited
    /// and gets a lock by this call, or with [`NoRoom`] if there is no room for it.
    ///
    /// In [`World::Whole`] an owner that wants another kind of lock than it has loses that one
    /// first, whatever becomes of the request, as under Linux.
    ///
    /// # Errors
    /// As [`Refused`] says.
    pub fn acquire(
        &mut self,
        subject: Subject,
        request: &Request,
        ticket: Option<T>,
        settle: impl FnMut(&T, Result<(), NoRoom>),
    ) -> Result<Acquired, Refused> {
        let bucket = bucket_of(subject.file);
        let place = self.enter(bucket, subject)?;
        let entry = &mut self.buckets[bucket][place];
        let owned = entry.place_of(request.owner);
        if let (World::Whole, Some(own)) = (subject.world, owned) {
            let has = entry.holders[own].ranges.as_slice().first();
            if has.is_some_and(|held| held.kind == request.kind) {
                return Ok(Acquired::Granted);
            }
            entry.remove(own);
        }
        let result = if !entry.keeps_from(request) {
            let granted = entry.grant(request).map_err(|NoRoom| Refused::NoRoom);
            granted.map(|()| Acquired::Granted)
        } else if let Some(ticket) = ticket {
            self.wait(subject, request, ticket)
        } else {
            Err(Refused::Conflict)
        };
        // Who had a lock before may have given up some of it for this one.
        if owned.is_some() {
            self.hand_over(subject, settle);
        }
        self.tidy(subject);
        result
    }

    /// Unlocks bytes of an owner. `settle` as in [`Self::acquire`].
    ///
    /// # Errors
    /// [`NoRoom`]: a lock falls in two, and there is no room for both; nothing has changed then.
    pub fn unlock(
        &mut self,
        subject: Subject,
        owner: Owner,
        span: Span,
        settle: impl FnMut(&T, Result<(), NoRoom>),
    ) -> Result<(), NoRoom> {
        if span == Span::ALL {
            self.release(subject, owner, settle);
            return Ok(());
        }
        let Some(entry) = self.entry_mut(subject) else {
            return Ok(());
        };
        let Some(place) = entry.place_of(owner) else {
            return Ok(());
        };
        let ranges = &mut entry.holders[place].ranges;
        // Nobody sees the label of what is not locked.
        ranges.set(span, None, Label { pid: 0, via: 0 })?;
        if ranges.as_slice().is_empty() {
            entry.remove(place);
        }
        self.hand_over(subject, settle);
        self.tidy(subject);
        Ok(())
    }

    /// Unlocks all that an owner has of a subject. `settle` as in [`Self::acquire`].
    pub fn release(
        &mut self,
        subject: Subject,
        owner: Owner,
        settle: impl FnMut(&T, Result<(), NoRoom>),
    ) {
        let had = self
            .entry_mut(subject)
            .is_some_and(|entry| entry.take_all(owner));
        if had {
            self.hand_over(subject, settle);
            self.tidy(subject);
        }
    }

    /// The first lock that keeps a request from being granted, and whose it is.
    pub fn blocker(&self, subject: Subject, request: &Request) -> Option<(Owner, Held)> {
        let (holder, at) = self.entry(subject)?.conflicts(request).next()?;
        Some((holder.owner, holder.ranges.as_slice()[at]))
    }

    /// Takes a request back that waits; false: it does not wait any more, its ticket was settled.
    pub fn cancel(&mut self, number: u64) -> bool {
        let Some(place) = self.waiters.iter().position(|w| w.number == number) else {
            return false;
        };
        let waiter = self.waiters.remove(place);
        if let Some(entry) = self.entry_mut(waiter.subject) {
            entry.waiting -= 1;
        }
        self.tidy(waiter.subject);
        true
    }

    /// Locks that are held, and requests that wait.
    pub fn count(&self) -> usize {
        let entries = self.buckets.iter().flatten();
        let held = |entry: &Entry| -> usize {
            let holders = entry.holders.iter();
            holders.map(|holder| holder.ranges.as_slice().len()).sum()
        };
        self.waiters.len() + entries.map(held).sum::<usize>()
    }

    /// Adds a line for each lock and each request that waits, as many as `lines` has room for.
    pub fn list(&self, lines: &mut Vec<Line>) {
        let mut add = |line| {
            if lines.len() < lines.capacity() {
                lines.push(line);
            }
        };
        let mut number = 0;
        for entry in self.buckets.iter().flatten() {
            let first = number;
            for (owner, held) in entry.lines() {
                number += 1;
                add(Line {
                    number,
                    waits: false,
                    subject: entry.subject,
                    owner,
                    held: *held,
                });
            }
            if entry.waiting == 0 {
                continue;
            }
            for waiter in self.waiters.iter().filter(|w| w.subject == entry.subject) {
                let Some((blocker, at)) = entry.conflicts(&waiter.request).next() else {
                    continue;
                };
                let Request {
                    owner,
                    span,
                    kind,
                    label,
                } = waiter.request;
                let before = entry
                    .holders
                    .iter()
                    .take_while(|h| h.owner != blocker.owner);
                let before: usize = before.map(|h| h.ranges.as_slice().len()).sum();
                add(Line {
                    number: first + before + at + 1,
                    waits: true,
                    subject: entry.subject,
                    owner,
                    held: Held { span, kind, label },
                });
            }
        }
    }

    /// Returns how many subjects have an entry, also those that say nothing.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.buckets.iter().map(Vec::len).sum()
    }

    fn entry(&self, subject: Subject) -> Option<&Entry> {
        let bucket = &self.buckets[bucket_of(subject.file)];
        bucket.iter().find(|entry| entry.subject == subject)
    }

    fn entry_mut(&mut self, subject: Subject) -> Option<&mut Entry> {
        let bucket = &mut self.buckets[bucket_of(subject.file)];
        bucket.iter_mut().find(|entry| entry.subject == subject)
    }

    /// The place of the subject's entry, which is made if there is none.
    fn enter(&mut self, bucket: usize, subject: Subject) -> Result<usize, Refused> {
        let entries = &mut self.buckets[bucket];
        if let Some(place) = entries.iter().position(|entry| entry.subject == subject) {
            return Ok(place);
        }
        entries.try_reserve(1).map_err(|_| Refused::NoRoom)?;
        entries.push(Entry {
            subject,
            holders: Vec::new(),
            waiting: 0,
            spare: Ranges::new(),
        });
        Ok(entries.len() - 1)
    }

    /// Makes the subject's entry the idle one if it says nothing, and drops the idle one before.
    fn tidy(&mut self, subject: Subject) {
        let Some(entry) = self.entry_mut(subject).filter(|entry| entry.is_idle()) else {
            return;
        };
        entry.holders.shrink_to(SPARE_HOLDERS);
        let before = self.idle.replace(subject);
        let Some(before) = before.filter(|before| *before != subject) else {
            return;
        };
        let entries = &mut self.buckets[bucket_of(before.file)];
        let idle = |entry: &Entry| entry.subject == before && entry.is_idle();
        if let Some(place) = entries.iter().position(idle) {
            entries.swap_remove(place);
            if entries.is_empty() {
                *entries = Vec::new();
            }
        }
    }

    fn wait(
        &mut self,
        subject: Subject,
        request: &Request,
        ticket: T,
    ) -> Result<Acquired, Refused> {
        if self.would_deadlock(subject, request)? {
            return Err(Refused::Deadlock);
        }
        self.waiters.try_reserve(1).map_err(|_| Refused::NoRoom)?;
        let number = self.next_number;
        self.next_number += 1;
        self.waiters.push(Waiter {
            number,
            subject,
            request: *request,
            ticket,
        });
        if let Some(entry) = self.entry_mut(subject) {
            entry.waiting += 1;
        }
        Ok(Acquired::Waiting(number))
    }

    /// Whether the owner of a request, if it waits, waits for somebody who waits for it, through
    /// however many others. Only owners of POSIX locks are asked: an open file does not wait, those
    /// who have it do.
    fn would_deadlock(&self, subject: Subject, request: &Request) -> Result<bool, Refused> {
        if !matches!(request.owner, Owner::Files(_)) || self.waiters.is_empty() {
            return Ok(false);
        }
        // Owners that the request waits for, directly or through those before them.
        let mut reached: Vec<Owner> = Vec::new();
        let mut steps = MAX_STEPS;
        if self.reach(subject, request, request.owner, &mut reached, &mut steps)? {
            return Ok(true);
        }
        let mut at = 0;
        // Each turn deals with an owner that was not met before, until the steps are used up.
        while let Some(&owner) = reached.get(at) {
            at += 1;
            for waiter in &self.waiters {
                let Some(left) = steps.checked_sub(1) else {
                    return Ok(false);
                };
                steps = left;
                if waiter.request.owner == owner
                    && self.reach(
                        waiter.subject,
                        &waiter.request,
                        request.owner,
                        &mut reached,
                        &mut steps,
                    )?
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Adds those to `reached` who hold a lock against `request`; says whether `sought` is one.
    fn reach(
        &self,
        subject: Subject,
        request: &Request,
        sought: Owner,
        reached: &mut Vec<Owner>,
        steps: &mut usize,
    ) -> Result<bool, Refused> {
        let Some(entry) = self.entry(subject) else {
            return Ok(false);
        };
        for (holder, _) in entry.conflicts(request) {
            if holder.owner == sought {
                return Ok(true);
            }
            let Some(left) = steps.checked_sub(1 + reached.len()) else {
                return Ok(false);
            };
            *steps = left;
            if matches!(holder.owner, Owner::Files(_)) && !reached.contains(&holder.owner) {
                reached.try_reserve(1).map_err(|_| Refused::NoRoom)?;
                reached.push(holder.owner);
            }
        }
        // Those who hold nothing against it were looked at too.
        *steps = steps.saturating_sub(entry.holders.len());
        Ok(false)
    }

    /// Grants what has become possible to those who wait for a subject, the longest first.
    fn hand_over(&mut self, subject: Subject, mut settle: impl FnMut(&T, Result<(), NoRoom>)) {
        let entries = &mut self.buckets[bucket_of(subject.file)];
        let Some(entry) = entries.iter_mut().find(|entry| entry.subject == subject) else {
            return;
        };
        let mut again = entry.waiting > 0;
        // Each turn but the last grants something.
        while again {
            again = false;
            self.waiters.retain(|waiter| {
                let request = &waiter.request;
                if waiter.subject != subject || entry.keeps_from(request) {
                    return true;
                }
                // An owner's other request may make less of a lock that it has: those who were
                // looked at before are looked at again.
                again |= entry.place_of(request.owner).is_some();
                settle(&waiter.ticket, entry.grant(request));
                entry.waiting -= 1;
                false
            });
        }
    }
}

/// The list that a file is on.
fn bucket_of(file: FileKey) -> usize {
    // Fibonacci hashing: the top bits depend on all bits below.
    let mixed = (file.inode ^ (file.device << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::from(mixed.to_be_bytes()[0])
}

const _: () = assert!(BUCKETS == 1 << u8::BITS);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}
