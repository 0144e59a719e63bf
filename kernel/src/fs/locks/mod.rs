//! Locks of files: `flock`, POSIX record locks, and those of open files (`F_OFD_*`).
//!
//! `table` has the holders and the waiting requests, `ranges` the locks of one owner; neither
//! depends on the machine. This module has the waiting, and the one spin lock around the table.
//! Under that lock a waker takes a wait queue's lock and the scheduler's, never the other way
//! round. So no open file and no table of descriptors may be dropped with one of those held.
//!
//! Each waiting task sleeps on its own ticket. The task that grants the lock settles the ticket
//! under the spin lock and then wakes the sleeper. A task that stops waiting cancels its request
//! under the same lock, or finds that the ticket was settled. So a lock is never granted to a task
//! that has stopped waiting. No wake-up is lost, because the ticket is tested after the sleeper is
//! on the queue.

use super::file::OpenFile;
use super::table::FileTable;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering};
use logic::errno::Errno;
use logic::locks::ranges::{Held, Kind, Label, NoRoom, Span};
use logic::locks::table::{
    Acquired, FileKey, Line, Owner, Refused, Request, Subject, Table, World, bucket_of,
};
use machine::sync::{SpinLock, WaitQueue};

static TABLE: SpinLock<Table<Arc<Ticket>>> = SpinLock::new(Table::new());

/// The most attempts to read a bucket of the table into a list, while the bucket grows.
const MAX_TRIES: usize = 8;

/// The wait of one task for one lock.
struct Ticket {
    /// [`WAITING`], then [`GRANTED`] or [`FAILED`], which does not change any more.
    state: AtomicU8,
    queue: WaitQueue,
}

const WAITING: u8 = 0;
const GRANTED: u8 = 1;
const FAILED: u8 = 2;

impl Ticket {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(WAITING),
            queue: WaitQueue::new(),
        })
    }

    fn state(&self) -> u8 {
        // Acquire: pairs with the Release in `settle`.
        self.state.load(Ordering::Acquire)
    }
}

/// Sets the result of a wait and wakes the sleeper. The table is locked.
fn settle(ticket: &Arc<Ticket>, result: Result<(), NoRoom>) {
    let state = if result.is_ok() { GRANTED } else { FAILED };
    // Release: pairs with the Acquire in `state`. A task that sees the lock granted sees everything
    // that was done under the lock before.
    ticket.state.store(state, Ordering::Release);
    ticket.queue.wake_all();
}

fn subject(file: &OpenFile, world: World) -> Subject {
    let id = file.node().id();
    let (device, inode) = (id.device, id.inode);
    let file = FileKey { device, inode };
    Subject { file, world }
}

/// Returns the identity of an open file, which is unique while the file is open.
fn description(file: &OpenFile) -> u64 {
    core::ptr::from_ref(file) as u64
}

/// Returns the identity of a table of descriptors, which is unique while a process uses the table.
fn files_id(files: &FileTable) -> u64 {
    core::ptr::from_ref(files) as u64
}

/// The owner of a lock, and the process that requests it.
#[derive(Copy, Clone, Debug)]
pub struct Holder<'a> {
    /// The number of the process that requests the lock.
    pub pid: u32,
    /// The table of descriptors that owns the lock, for POSIX locks: all processes with this table
    /// own it. `None` if the open file owns the lock (`F_OFD_*`, `flock`).
    pub files: Option<&'a FileTable>,
}

impl Holder<'_> {
    fn owner(self, file: &OpenFile) -> Owner {
        match self.files {
            Some(files) => Owner::Files(files_id(files)),
            None => Owner::Description(description(file)),
        }
    }

    /// Records that there may be locks to release at the end.
    fn note(self, file: &OpenFile) {
        match self.files {
            Some(files) => files.note_locks(),
            None => file.note_locks(),
        }
    }

    fn request(self, file: &OpenFile, span: Span, kind: Kind) -> Request {
        let label = Label {
            pid: self.pid,
            via: description(file),
        };
        let owner = self.owner(file);
        Request {
            owner,
            span,
            kind,
            label,
        }
    }
}

/// Acquires a lock. With `wait` the task may sleep until it has the lock. Fails with `EAGAIN` if
/// another lock conflicts and `wait` is `false`, with `EDEADLK` at a deadlock, with `ENOLCK` if
/// memory is short, and with `ERESTARTSYS` at a signal.
fn acquire(subject: Subject, request: &Request, wait: bool) -> Result<(), Errno> {
    let first = TABLE.lock().acquire(subject, request, None, settle);
    match first {
        Err(Refused::Conflict) if wait => {}
        other => return other.map(|_| ()).map_err(Errno::from),
    }
    let ticket = Ticket::new();
    let second = TABLE
        .lock()
        .acquire(subject, request, Some(ticket.clone()), settle);
    let Acquired::Waiting(number) = second? else {
        return Ok(());
    };
    let waited = ticket.queue.wait(|| ticket.state() != WAITING);
    if let Err(interrupted) = waited
        && TABLE.lock().cancel(number)
    {
        return Err(interrupted.into());
    }
    if ticket.state() == GRANTED {
        Ok(())
    } else {
        Err(Errno::ENOLCK)
    }
}

/// Locks bytes of a file, or unlocks them if `kind` is `None`. With `wait` the task sleeps until no
/// other owner holds a conflicting lock.
///
/// # Errors
/// Fails with `EAGAIN` if another owner holds a conflicting lock and `wait` is `false`. Fails with
/// `EDEADLK` if that owner waits for this one, and with `ENOLCK` if memory is short or there are
/// too many locks. Fails with the error of a signal that interrupts the wait.
pub fn lock_span(
    file: &OpenFile,
    holder: Holder<'_>,
    span: Span,
    kind: Option<Kind>,
    wait: bool,
) -> Result<(), Errno> {
    let subject = subject(file, World::Ranges);
    let Some(kind) = kind else {
        let owner = holder.owner(file);
        let result = TABLE.lock().unlock(subject, owner, span, settle);
        return result.map_err(|NoRoom| Errno::ENOLCK);
    };
    holder.note(file);
    acquire(subject, &holder.request(file, span, kind), wait)
}

/// Returns the first lock that conflicts with a lock of the kind `kind` on the bytes `span` by
/// `holder`. The number is that of the process that owns the lock, or `None` if an open file owns
/// it. Returns `None` if no lock of another owner conflicts.
pub fn blocker(
    file: &OpenFile,
    holder: Holder<'_>,
    span: Span,
    kind: Kind,
) -> Option<(Option<u32>, Held)> {
    let request = holder.request(file, span, kind);
    let (owner, held) = TABLE
        .lock()
        .blocker(subject(file, World::Ranges), &request)?;
    Some((shown_pid(World::Ranges, owner, &held), held))
}

/// Locks the whole file for the open file `file`, or unlocks it if `kind` is `None` (`flock`).
/// `pid` is the number of the process that requests the lock. With `wait` the task sleeps until no
/// other open file holds a conflicting lock.
///
/// # Errors
/// Fails as [`lock_span`] does, but does not detect deadlocks.
pub fn lock_whole(file: &OpenFile, pid: u32, kind: Option<Kind>, wait: bool) -> Result<(), Errno> {
    let subject = subject(file, World::Whole);
    let Some(kind) = kind else {
        let owner = Owner::Description(description(file));
        TABLE.lock().release(subject, owner, settle);
        return Ok(());
    };
    let holder = Holder { pid, files: None };
    holder.note(file);
    let request = holder.request(file, Span::ALL, kind);
    acquire(subject, &request, wait)
}

/// Releases the POSIX locks on `file` that the table of descriptors `files` owns. Called when a
/// process closes a descriptor of the file in that table.
pub(super) fn release_files(files: &FileTable, file: &OpenFile) {
    let owner = Owner::Files(files_id(files));
    TABLE
        .lock()
        .release(subject(file, World::Ranges), owner, settle);
}

/// Releases all locks that the open file `file` owns, when the open file ends.
pub(super) fn release_description(file: &OpenFile) {
    let owner = Owner::Description(description(file));
    let mut table = TABLE.lock();
    for world in [World::Whole, World::Ranges] {
        table.release(subject(file, world), owner, settle);
    }
}

/// Returns every lock and every waiting request for the files in `bucket`, one of the
/// [`BUCKETS`](logic::locks::table::BUCKETS) of the table. Each request follows the lock that it
/// waits for. The numbers of the locks start at 1.
///
/// # Errors
/// Fails with `ENOMEM`.
pub fn in_bucket(bucket: usize) -> Result<Vec<Line>, Errno> {
    let mut lines = Vec::new();
    for _ in 0..MAX_TRIES {
        let wanted = TABLE.lock().count(bucket);
        lines.clear();
        lines.try_reserve(wanted).map_err(|_| Errno::ENOMEM)?;
        let table = TABLE.lock();
        table.list(bucket, &mut lines);
        if table.count(bucket) <= lines.capacity() {
            break;
        }
        // The bucket has grown in between. After the last attempt some entries are left out.
    }
    lines.sort_unstable_by_key(|line| (line.number, line.waits));
    Ok(lines)
}

/// Returns the locks that were placed through the open file `file` and that `file` or the table of
/// descriptors `files` owns (`/proc/PID/fdinfo`). Locks of the whole file come first. They are
/// numbered from 1.
///
/// # Errors
/// Fails with `ENOMEM`.
pub fn placed_by(files: &FileTable, file: &OpenFile) -> Result<Vec<Line>, Errno> {
    let via = description(file);
    let owners = [Owner::Files(files_id(files)), Owner::Description(via)];
    let key = subject(file, World::Whole).file;
    let mut lines = in_bucket(bucket_of(key))?;
    lines.retain(|line| {
        let of_file = line.subject.file == key && line.held.label.via == via;
        of_file && !line.waits && owners.contains(&line.owner)
    });
    // Locks of the whole file come first, as on Linux.
    lines.sort_unstable_by_key(|line| (line.subject.world == World::Ranges, line.number));
    for (at, line) in lines.iter_mut().enumerate() {
        line.number = at + 1;
    }
    Ok(lines)
}

/// Returns the process number that programs see as the owner of the lock `held`, which `owner`
/// owns. Returns `None` for a lock of a byte range that an open file owns (`F_OFD_*`), which
/// programs see as -1.
pub fn shown_pid(world: World, owner: Owner, held: &Held) -> Option<u32> {
    let of_file = world == World::Ranges && matches!(owner, Owner::Description(_));
    (!of_file).then_some(held.label.pid)
}
