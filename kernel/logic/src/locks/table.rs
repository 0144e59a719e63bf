//! All locks of all files, and the requests that wait for them.
//!
//! A lock that becomes free is handed over. The task that unlocks it grants all possible locks to
//! waiting requests, the oldest first, so no waiter wakes up to find the lock taken. As on Linux, a
//! new request is granted if no lock excludes it, even if others wait.

use super::ranges::{Held, Kind, Label, NoRoom, Ranges, Span};
use crate::errno::Errno;
use alloc::vec::Vec;

/// Number of buckets over which the files are spread.
pub const BUCKETS: usize = 256;
/// The most owners of locks on one file. Each of them is checked for a new request.
const MAX_OWNERS: usize = 1 << 16;
/// Number of owners for which memory is kept in the idle entry.
const SPARE_HOLDERS: usize = 4;
/// The most waiting requests and lock owners that one search for a deadlock looks at. A larger
/// deadlock is not detected. Linux gives up after ten processes.
const MAX_STEPS: usize = 1 << 18;

/// The identity of a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FileKey {
    /// Number of the file system.
    pub device: u64,
    /// Number of the file in its file system.
    pub inode: u64,
}

/// The system call that sets a lock. Locks that one call has set have no effect on locks that the
/// other one sets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum World {
    /// `flock`: always the whole file.
    Whole,
    /// `fcntl`: ranges of bytes.
    Ranges,
}

/// A file, and the system call (`flock` or `fcntl`) whose locks on this file are considered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The file.
    pub file: FileKey,
    /// The system call that sets the locks.
    pub world: World,
}

/// The owner of a lock on a file. Only locks of different owners exclude each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The processes that share this table of file descriptors (POSIX locks).
    Files(u64),
    /// The holders of this open file description (`flock`, `F_OFD_*`).
    Description(u64),
}

/// A request for a lock on a file.
#[derive(Copy, Clone, Debug)]
pub struct Request {
    /// The owner of the lock once the request is granted.
    pub owner: Owner,
    /// The bytes to lock.
    pub span: Span,
    /// The kind of lock.
    pub kind: Kind,
    /// The creator of the lock.
    pub label: Label,
}

/// The result of a request that was not refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lock is held.
    Granted,
    /// The request waits under this number, with which [`Table::cancel`] cancels it. When the
    /// request is granted or fails, `settle` is called with its ticket.
    Waiting(u64),
}

/// The reason why a request for a lock was refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another owner's lock excludes the request, and the request must not wait.
    Conflict,
    /// Waiting would be a deadlock.
    Deadlock,
    /// There is no room for the lock or for the waiting request.
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

/// A lock or a waiting request, as a line of `/proc/locks`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of a held lock. A waiting request has the number of the first lock that it waits for.
    pub number: usize,
    /// Whether this is a waiting request.
    pub waits: bool,
    /// The file and world.
    pub subject: Subject,
    /// The owner of the lock or the request.
    pub owner: Owner,
    /// The lock that is held or requested.
    pub held: Held,
}

/// The locks of one owner on one subject.
#[derive(Debug)]
struct Holder {
    owner: Owner,
    ranges: Ranges,
}

/// A subject with locks.
#[derive(Debug)]
struct Entry {
    subject: Subject,
    /// In the order of their first locks.
    holders: Vec<Holder>,
    /// Number of requests that wait for this subject.
    waiting: usize,
    /// An empty list with the memory of a removed holder, for the next one.
    spare: Ranges,
}

impl Entry {
    /// Returns the holders with locks that exclude `request`. For each holder, also returns the
    /// index of its first such lock.
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

    /// Returns whether a lock of another owner excludes `request`.
    fn keeps_from(&self, request: &Request) -> bool {
        self.conflicts(request).next().is_some()
    }

    fn place_of(&self, owner: Owner) -> Option<usize> {
        self.holders.iter().position(|holder| holder.owner == owner)
    }

    /// Grants `request`, which no lock of another owner may exclude. Fails with [`NoRoom`] if the
    /// file has too many owners or locks, or if memory is short.
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

    /// Removes all locks of `owner`. Returns whether it had any.
    fn take_all(&mut self, owner: Owner) -> bool {
        let place = self.place_of(owner);
        place.map(|place| self.remove(place)).is_some()
    }

    /// Removes the holder at `place` and all its locks.
    fn remove(&mut self, place: usize) {
        let mut ranges = self.holders.remove(place).ranges;
        ranges.clear();
        self.spare = ranges;
    }

    /// Returns whether the entry has neither locks nor waiting requests.
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

/// A waiting request. Its ticket, of type `T`, identifies the waiter for `settle`.
#[derive(Debug)]
struct Waiter<T> {
    number: u64,
    subject: Subject,
    request: Request,
    ticket: T,
}

/// The locks of all files and the requests that wait for them. `T` is the ticket of a waiting
/// request, which identifies its waiter.
#[derive(Debug)]
pub struct Table<T> {
    buckets: [Vec<Entry>; BUCKETS],
    /// The subject whose entry last became idle and is kept. So a file that is locked and unlocked
    /// in turn needs no new memory each time.
    idle: Option<Subject>,
    /// The waiting requests, the oldest first.
    waiters: Vec<Waiter<T>>,
    next_number: u64,
}

impl<T> Table<T> {
    /// Returns a table without locks.
    pub const fn new() -> Self {
        Self {
            buckets: [const { Vec::new() }; BUCKETS],
            idle: None,
            waiters: Vec::new(),
            next_number: 0,
        }
    }

    /// Grants `request` on `subject` and returns [`Acquired::Granted`]. If locks of other owners
    /// exclude the request and `ticket` is given, the request waits instead, and this returns
    /// [`Acquired::Waiting`].
    ///
    /// If the owner gives up other locks for this one, waiting requests may become possible. Calls
    /// `settle` with the ticket and the result of each of these: `Ok` if it is granted, or
    /// [`NoRoom`] if there is no room for its lock.
    ///
    /// In [`World::Whole`] an owner that requests another kind of lock than it has loses the old
    /// lock first, as on Linux. That happens even if the request fails.
    ///
    /// # Errors
    /// [`Refused`] with the reason. [`Refused::Conflict`] if the request would have to wait and
    /// `ticket` is `None`.
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
        // An owner that had locks may have given up some of them for this one.
        if owned.is_some() {
            self.hand_over(subject, settle);
        }
        self.tidy(subject);
        result
    }

    /// Unlocks the bytes `span` of `subject` for `owner`. Calls `settle` as [`Self::acquire`] does.
    ///
    /// # Errors
    /// [`NoRoom`] if a lock is split in two and there is no room for both. No lock has changed
    /// then.
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
        // The label of unlocked bytes is never used.
        ranges.set(span, None, Label { pid: 0, via: 0 })?;
        if ranges.as_slice().is_empty() {
            entry.remove(place);
        }
        self.hand_over(subject, settle);
        self.tidy(subject);
        Ok(())
    }

    /// Removes all locks of `owner` on `subject`. Calls `settle` as [`Self::acquire`] does.
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

    /// Returns the first lock that excludes `request` on `subject`, and its owner. Returns `None`
    /// if no lock excludes the request.
    pub fn blocker(&self, subject: Subject, request: &Request) -> Option<(Owner, Held)> {
        let (holder, at) = self.entry(subject)?.conflicts(request).next()?;
        Some((holder.owner, holder.ranges.as_slice()[at]))
    }

    /// Cancels the waiting request with this `number` and returns `true`. Returns `false` if the
    /// request no longer waits, because `settle` was called with its ticket.
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

    /// Returns the number of held locks and waiting requests for the files in `bucket`.
    pub fn count(&self, bucket: usize) -> usize {
        let held = |entry: &Entry| -> usize {
            let holders = entry.holders.iter();
            holders.map(|holder| holder.ranges.as_slice().len()).sum()
        };
        let entries = self.buckets[bucket].iter();
        entries.map(|entry| entry.waiting + held(entry)).sum()
    }

    /// Adds a line for each held lock and each waiting request for the files in `bucket`, up to the
    /// capacity of `lines`. The numbers of the lines start at 1.
    pub fn list(&self, bucket: usize, lines: &mut Vec<Line>) {
        let mut add = |line| {
            if lines.len() < lines.capacity() {
                lines.push(line);
            }
        };
        let mut number = 0;
        for entry in &self.buckets[bucket] {
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
            let waiters = self.waiters.iter().filter(|w| w.subject == entry.subject);
            for waiter in waiters.take(entry.waiting) {
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

    /// Returns the number of subjects that have an entry in the table, with or without locks and
    /// waiting requests.
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

    /// Returns the index in `bucket` of the entry of `subject`. Creates the entry if there is none.
    /// Fails with [`Refused::NoRoom`] if memory is short.
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

    /// If the entry of `subject` has neither locks nor waiting requests, keeps it as the idle
    /// entry, and removes the previous idle entry if that is still idle.
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

    /// Returns whether waiting for `subject` would make the owner of `request` wait for itself,
    /// directly or through other owners. Only owners of POSIX locks are followed, because an open
    /// file description does not wait; only tasks that hold it do. Returns `false` if the search
    /// takes more than [`MAX_STEPS`]. Fails with [`Refused::NoRoom`] if memory is short.
    fn would_deadlock(&self, subject: Subject, request: &Request) -> Result<bool, Refused> {
        if !matches!(request.owner, Owner::Files(_)) || self.waiters.is_empty() {
            return Ok(false);
        }
        // Owners that the request waits for, directly or through earlier ones in this list.
        let mut reached: Vec<Owner> = Vec::new();
        let mut steps = MAX_STEPS;
        if self.reach(subject, request, request.owner, &mut reached, &mut steps)? {
            return Ok(true);
        }
        let mut at = 0;
        // Each iteration handles an owner not handled before, until the steps are used up.
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

    /// Adds the owners of POSIX locks on `subject` that exclude `request` to `reached`. Returns
    /// `true` as soon as the owner of such a lock is `sought`. Each owner looked at uses up some of
    /// `steps`. Returns `false` if they are used up, or if no owner is `sought`. Fails with
    /// [`Refused::NoRoom`] if memory is short.
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
        // Holders without excluding locks were looked at, too.
        *steps = steps.saturating_sub(entry.holders.len());
        Ok(false)
    }

    /// Grants the waiting requests for `subject` that have become possible, the oldest first. Calls
    /// `settle` with the ticket and the result of each of them.
    fn hand_over(&mut self, subject: Subject, mut settle: impl FnMut(&T, Result<(), NoRoom>)) {
        let entries = &mut self.buckets[bucket_of(subject.file)];
        let Some(entry) = entries.iter_mut().find(|entry| entry.subject == subject) else {
            return;
        };
        let mut again = entry.waiting > 0;
        // Each iteration but the last grants a request.
        while again {
            again = false;
            self.waiters.retain(|waiter| {
                let request = &waiter.request;
                if waiter.subject != subject || entry.keeps_from(request) {
                    return true;
                }
                // The request may shrink another lock of its owner, so earlier requests are checked
                // again.
                again |= entry.place_of(request.owner).is_some();
                settle(&waiter.ticket, entry.grant(request));
                entry.waiting -= 1;
                false
            });
        }
    }
}

/// Returns the index of the bucket that contains the locks of `file`. It is below [`BUCKETS`].
pub fn bucket_of(file: FileKey) -> usize {
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
