//! Locks of files: `flock`, POSIX record locks, and those of open files (`F_OFD_*`).
//!
//! `table` says who holds what and who waits, `ranges` what one owner holds; neither needs a
//! machine. Here are the waiting and the one spin lock around all of it. Under that lock a waker
//! takes a wait queue's lock and the scheduler's, never the other way round: nobody drops an open
//! file or a table of descriptors with one of those held.
//!
//! Who waits sleeps on a ticket of its own. Whoever grants the lock settles the ticket under the
//! spin lock and then wakes it; whoever stops waiting takes the request back under the same lock,
//! or finds that it was settled. So a lock is never granted to somebody who has gone, and no
//! wake-up is lost: the ticket is tested after the sleeper is on the queue.

use super::file::OpenFile;
use super::table::FileTable;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering};
use logic::errno::Errno;
use logic::locks::ranges::{Held, Kind, Label, NoRoom, Span};
use logic::locks::table::{
    Acquired, FileKey, Line, Owner, Refused, Request, Subject, Table, World,
};
use machine::sync::{SpinLock, WaitQueue};

static TABLE: SpinLock<Table<Arc<Ticket>>> = SpinLock::new(Table::new());

/// Times that a list is begun anew because it has grown.
const MAX_TRIES: usize = 8;

/// One wait for one lock.
struct Ticket {
    /// One of [`WAITING`], [`GRANTED`], [`FAILED`]; leaves the first once.
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

/// Tells a sleeper how its wait ended; the table is locked.
fn settle(ticket: &Arc<Ticket>, result: Result<(), NoRoom>) {
    let state = if result.is_ok() { GRANTED } else { FAILED };
    // Release: pairs with the Acquire in `state`; who sees the lock granted sees what was done
    // under it before.
    ticket.state.store(state, Ordering::Release);
    ticket.queue.wake_all();
}

fn subject(file: &OpenFile, world: World) -> Subject {
    let id = file.node().id();
    let (device, inode) = (id.device, id.inode);
    let file = FileKey { device, inode };
    Subject { file, world }
}

/// What tells an open file from all others, as long as it is open.
fn description(file: &OpenFile) -> u64 {
    core::ptr::from_ref(file) as u64
}

/// What tells a table of descriptors from all others, as long as a process uses it.
fn files_id(files: &FileTable) -> u64 {
    core::ptr::from_ref(files) as u64
}

/// Whose a lock shall be, and by which process it is placed.
#[derive(Copy, Clone, Debug)]
pub struct Holder<'a> {
    /// The process.
    pub pid: u32,
    /// The lock belongs to all processes with this table (POSIX locks); without one, to the open file
    /// (`F_OFD_*`, `flock`).
    pub files: Option<&'a FileTable>,
}

impl Holder<'_> {
    fn owner(self, file: &OpenFile) -> Owner {
        match self.files {
            Some(files) => Owner::Files(files_id(files)),
            None => Owner::Description(description(file)),
        }
    }

    /// Notes that there may be locks to release in the end.
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

/// Takes a lock; with `wait` it may sleep until it has it.
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

/// Locks bytes of a file, or unlocks them with `None`. With `wait` it sleeps until nobody holds a
/// lock against it.
///
/// # Errors
/// `EAGAIN`: somebody does; `EDEADLK`: whoever does waits for this owner; `ENOLCK`: no memory, or
/// too many locks; a signal's when one breaks the wait off.
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

/// The first lock of another owner that keeps this one from locking `span`; a process's number,
/// unless it is an open file's.
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

/// `flock`: locks the whole file for whoever has this open file, or unlocks it with `None`.
///
/// # Errors
/// As [`lock_span`], but there is no search for deadlocks.
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

/// Unlocks what the processes with this table hold of a file: one of them closed it.
pub(super) fn release_files(files: &FileTable, file: &OpenFile) {
    let owner = Owner::Files(files_id(files));
    TABLE
        .lock()
        .release(subject(file, World::Ranges), owner, settle);
}

/// Unlocks what an open file holds, at its end.
pub(super) fn release_description(file: &OpenFile) {
    let owner = Owner::Description(description(file));
    let mut table = TABLE.lock();
    for world in [World::Whole, World::Ranges] {
        table.release(subject(file, world), owner, settle);
    }
}

/// Every lock and every request that waits, each request behind the lock that it waits for.
///
/// # Errors
/// `ENOMEM`.
pub fn all() -> Result<Vec<Line>, Errno> {
    let mut lines = Vec::new();
    for _ in 0..MAX_TRIES {
        let wanted = TABLE.lock().count();
        lines.clear();
        lines.try_reserve(wanted).map_err(|_| Errno::ENOMEM)?;
        let table = TABLE.lock();
        table.list(&mut lines);
        if table.count() <= lines.capacity() {
            break;
        }
        // There are more meanwhile; in the end some are left out.
    }
    lines.sort_unstable_by_key(|line| (line.number, line.waits));
    Ok(lines)
}

/// The locks that a process with this table placed by one of its open files.
///
/// # Errors
/// `ENOMEM`.
pub fn placed_by(files: &FileTable, file: &OpenFile) -> Result<Vec<Line>, Errno> {
    let via = description(file);
    let owners = [Owner::Files(files_id(files)), Owner::Description(via)];
    let mut lines = all()?;
    let key = subject(file, World::Whole).file;
    lines.retain(|line| {
        let of_file = line.subject.file == key && line.held.label.via == via;
        of_file && !line.waits && owners.contains(&line.owner)
    });
    // Those of the whole file first, as Linux has them.
    lines.sort_unstable_by_key(|line| (line.subject.world == World::Ranges, line.number));
    for (at, line) in lines.iter_mut().enumerate() {
        line.number = at + 1;
    }
    Ok(lines)
}

/// The process of a lock as others see it: an open file's lock of bytes has none.
pub fn shown_pid(world: World, owner: Owner, held: &Held) -> Option<u32> {
    let of_file = world == World::Ranges && matches!(owner, Owner::Description(_));
    (!of_file).then_some(held.label.pid)
}
