//! inotify: events of watched nodes, read through a descriptor.

use super::file::File;
use super::flags::OpenFlags;
use super::io::ByteSink;
use super::node::NodeRef;
use super::poll::{Notifier, PollMask};
use super::watch::{self, Events, Listener, Watch};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use linux_raw_sys::ioctl::FIONREAD;
use logic::errno::{Errno, SysResult};
use logic::events::{Event, Events as Queue, Taken};
use machine::memory::{self, PAGE_SIZE};
use machine::sync::SpinLock;
use machine::uaccess;

/// The limits of `/proc/sys/fs/inotify`.
#[derive(Debug)]
pub struct Limits {
    /// The most events that wait at one descriptor.
    pub events: AtomicU64,
    /// The most open descriptors.
    pub instances: AtomicU64,
    /// The most watches plus 1. 0 derives the limit from the size of RAM.
    watches: AtomicU64,
}

/// The limits on inotify that are in force.
pub static LIMITS: Limits = Limits {
    events: AtomicU64::new(16384),
    instances: AtomicU64::new(128),
    watches: AtomicU64::new(0),
};

impl Limits {
    /// Returns the most watches that may exist.
    pub fn watches(&self) -> u64 {
        match self.watches.load(Ordering::Relaxed) {
            0 => (ram_bytes() / 100 / WATCH_BYTES).clamp(8192, MAX_WATCHES),
            more => more - 1,
        }
    }

    /// Sets the most watches that may exist.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `watches` exceeds `i32::MAX`, as the number of a watch is an `i32`.
    pub fn set_watches(&self, watches: u64) -> Result<(), Errno> {
        if watches > i32::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        self.watches.store(watches + 1, Ordering::Relaxed);
        Ok(())
    }
}

/// The bytes that Linux counts for a watch, with the node that it keeps.
const WATCH_BYTES: u64 = 1280;
/// The most watches, even if the limit is set higher, because lists of them are searched under a
/// lock.
const MAX_WATCHES: u64 = 1 << 20;

fn ram_bytes() -> u64 {
    memory::allocator().managed_frames() * PAGE_SIZE as u64
}

/// The bytes of all waiting events.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// All waiting events together take at most RAM divided by this number.
const WAITING_SHARE: u64 = 16;

/// The number of open descriptors.
static INSTANCES: AtomicUsize = AtomicUsize::new(0);

/// The watches of one descriptor, and its queue of events.
struct Inotify {
    /// The watches, sorted by number.
    watches: SpinLock<Watches>,
    queue: SpinLock<Queue>,
    notifier: Arc<Notifier>,
}

struct Watches {
    known: Vec<Arc<Watch>>,
    next: i32,
}

impl Watches {
    fn find(&self, number: i32) -> Result<usize, usize> {
        self.known
            .binary_search_by_key(&number, |watch| watch.number())
    }

    /// Returns a free number, allocated as on Linux: the next one, and from 1 on again after the
    /// largest. A free number always exists, so this never returns `None`.
    fn free_number(&self) -> Option<i32> {
        let mut number = self.next;
        // This loop ends: among one more number than there are watches, one is free.
        for _ in 0..=self.known.len() {
            if self.find(number).is_err() {
                return Some(number);
            }
            number = number.checked_add(1).unwrap_or(1);
        }
        None
    }
}

impl Listener for Inotify {
    fn event(&self, watch: &Watch, events: Events, cookie: u32, name: &[u8]) {
        let to_itself = events.intersects(Events::MOVE_SELF | Events::DELETE_SELF);
        let events = if to_itself {
            events - Events::DIRECTORY
        } else {
            events
        };
        // Relaxed, here and below: the sum orders no other access.
        let full = WAITING.load(Ordering::Relaxed) as u64 > ram_bytes() / WAITING_SHARE;
        // A bucket is locked, so this function cannot wait for memory.
        let limit = if full || memory::is_scarce() {
            0
        } else {
            usize::try_from(LIMITS.events.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
        };
        let event = Event {
            watch: watch.number(),
            mask: events.bits(),
            cookie,
            name,
        };
        let added = {
            let mut queue = self.queue.lock();
            let before = queue.bytes();
            let added = queue.add(&event, limit);
            WAITING.fetch_add(queue.bytes() - before, Ordering::Relaxed);
            added
        };
        if added {
            self.notifier.notify(PollMask::READABLE);
        }
    }

    fn prepare(&self) -> Result<(), Errno> {
        if watch::count() as u64 >= LIMITS.watches().min(MAX_WATCHES) {
            return Err(Errno::ENOSPC);
        }
        watch::make_room(&self.watches, |watches| &mut watches.known)
    }

    fn enter(&self, watch: &Arc<Watch>) -> Result<Option<i32>, Errno> {
        let mut watches = self.watches.lock();
        if watches.known.len() == watches.known.capacity() {
            return Ok(None);
        }
        let number = watches.free_number().ok_or(Errno::ENOSPC)?;
        watches.next = number.checked_add(1).unwrap_or(1);
        watch.set_number(number);
        if let Err(at) = watches.find(number) {
            watches.known.insert(at, watch.clone());
        }
        Ok(Some(number))
    }

    fn leave(&self, number: i32) -> Option<Arc<Watch>> {
        let mut watches = self.watches.lock();
        let at = watches.find(number).ok()?;
        Some(watches.known.remove(at))
    }
}

/// The file of an inotify descriptor.
pub struct InotifyFile(Arc<Inotify>);

impl fmt::Debug for InotifyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InotifyFile")
    }
}

impl InotifyFile {
    /// Returns the file of a new descriptor without watches.
    ///
    /// # Errors
    /// Fails with `EMFILE` if the limit `instances` of [`LIMITS`] is reached.
    pub fn new() -> Result<Self, Errno> {
        let limit = LIMITS.instances.load(Ordering::Relaxed);
        // Relaxed: the number orders no other access.
        if INSTANCES.fetch_add(1, Ordering::Relaxed) as u64 >= limit {
            INSTANCES.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::EMFILE);
        }
        Ok(Self(Arc::new(Inotify {
            watches: SpinLock::new(Watches {
                known: Vec::new(),
                next: 1,
            }),
            queue: SpinLock::new(Queue::new()),
            notifier: Arc::new(Notifier::new()),
        })))
    }

    /// Watches `node` for the events `asked`, or changes the events of an existing watch. Returns
    /// the number of the watch.
    ///
    /// # Errors
    /// Fails with `EEXIST`, `ENOENT`, `ENOSPC` or `ENOMEM`, as `watch::add` does.
    pub fn add(&self, node: &NodeRef, asked: Events) -> Result<i32, Errno> {
        let listener: Arc<dyn Listener> = self.0.clone();
        watch::add(node, &listener, asked)
    }

    /// Ends the watch `number`.
    ///
    /// # Errors
    /// Fails with `EINVAL` if there is no watch of this number.
    pub fn remove(&self, number: i32) -> Result<(), Errno> {
        let watch = {
            let watches = self.0.watches.lock();
            let at = watches.find(number).map_err(|_| Errno::EINVAL)?;
            watches.known[at].clone()
        };
        if watch::remove(&watch, true) {
            Ok(())
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// Takes the next event, as a program reads it. `None` if no event waits.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the event does not fit into `room` bytes.
    fn take(&self, room: usize) -> Option<Result<Taken, Errno>> {
        let taken = self.0.queue.lock().take(room)?;
        if let Ok(event) = &taken {
            WAITING.fetch_sub(event.len(), Ordering::Relaxed);
        }
        Some(taken.map_err(|_| Errno::EINVAL))
    }

    /// Ends one of the watches. Returns `false` if there is none.
    fn end_one(&self) -> bool {
        // The last one is the cheapest to remove from the list.
        let last = self.0.watches.lock().known.last().cloned();
        let Some(watch) = last else { return false };
        watch::remove(&watch, false);
        true
    }
}

impl Drop for InotifyFile {
    fn drop(&mut self) {
        while self.end_one() {}
        INSTANCES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        // Subtracted here and not when the file is dropped, because a task with a reference to a
        // watch may still add an event.
        WAITING.fetch_sub(self.queue.lock().bytes(), Ordering::Relaxed);
    }
}

impl File for InotifyFile {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        let mut done = 0;
        loop {
            let event = match self.take(to.room()) {
                Some(Ok(event)) => event,
                Some(Err(_)) if done > 0 => return Ok(done),
                Some(Err(error)) => return Err(error),
                None if done > 0 => return Ok(done),
                None if flags.nonblocking() => return Err(Errno::EAGAIN),
                None => {
                    let waits = || !self.0.queue.lock().is_empty();
                    self.0.notifier.queue().wait(waits)?;
                    continue;
                }
            };
            // As on Linux, an event that was taken is lost if the program's buffer is bad.
            match to.put(&event) {
                Ok(moved) if moved == event.len() => done += moved,
                _ => return Err(Errno::EFAULT),
            }
        }
    }

    fn poll(&self) -> PollMask {
        if self.0.queue.lock().is_empty() {
            PollMask::empty()
        } else {
            PollMask::READABLE
        }
    }

    fn last_close(&self) {
        while self.end_one() {
            machine::sched::cond_resched();
        }
    }

    fn signals(&self) -> Result<Option<Arc<Notifier>>, Errno> {
        // An event may be reported with a lock held, so no signal can be sent then.
        Err(Errno::EINVAL)
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.0.notifier.clone())
    }

    fn ioctl(&self, command: u32, argument: u64) -> SysResult {
        if command != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let bytes = self.0.queue.lock().bytes();
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        uaccess::copy_out(argument, &bytes.to_le_bytes())?;
        Ok(0)
    }

    fn describe(&self, text: &mut dyn Write) -> fmt::Result {
        let mut from = 0;
        loop {
            // One watch at a time, as writing may allocate memory.
            let watch = {
                let watches = self.0.watches.lock();
                let at = watches.find(from).unwrap_or_else(|at| at);
                watches.known.get(at).cloned()
            };
            let Some(watch) = watch else { return Ok(()) };
            let (id, mask) = (watch.id(), watch.wanted().bits());
            writeln!(
                text,
                "inotify wd:{:x} ino:{:x} sdev:{:x} mask:{mask:x} ignored_mask:0",
                watch.number(),
                id.inode,
                id.device
            )?;
            let Some(next) = watch.number().checked_add(1) else {
                return Ok(());
            };
            from = next;
        }
    }
}
