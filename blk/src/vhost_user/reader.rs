//! A thread that reads the sockets of all front-ends of the process while their disks are busy.
//!
//! It gives a disk's thread some time to take a message itself, which saves a thread switch. Then
//! it takes the messages left in the socket into the disk's [`Inbox`]. It does nothing else, so
//! that no front-end can keep it from another's socket.

use super::inbox::Inbox;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;

/// Time that a disk's thread has to take a message itself.
const HEAD_START: Duration = Duration::from_millis(1);
/// Maximum number of sockets that are read after one wait.
const EVENTS: usize = 64;

/// A thread that reads the sockets of front-ends: its epoll and the inboxes that it fills.
#[derive(Debug)]
pub(crate) struct Reader {
    epoll: OwnedFd,
    inboxes: Mutex<Inboxes>,
}

/// The inboxes, by the number that epoll returns.
#[derive(Debug, Default)]
struct Inboxes {
    next: u64,
    by_number: BTreeMap<u64, Weak<Inbox>>,
}

/// The registration of an inbox at a [`Reader`]. Dropping it ends the reading, drops the inbox's
/// messages and closes their descriptors.
#[derive(Debug)]
pub(crate) struct Reading {
    reader: Arc<Reader>,
    number: u64,
    inbox: Arc<Inbox>,
}

impl Reader {
    /// Returns the reader of this process. The first successful call starts its thread, which
    /// restricts itself by `confine`; later calls ignore `confine`.
    ///
    /// # Errors
    /// Fails if the system refuses a thread or a descriptor, or `confine` fails.
    pub(crate) fn of_process(confine: Option<fn() -> io::Result<()>>) -> io::Result<Arc<Self>> {
        static READER: Mutex<Option<Arc<Reader>>> = Mutex::new(None);
        let mut there = READER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = &*there {
            return Ok(reader.clone());
        }
        let reader = Self::start(confine)?;
        *there = Some(reader.clone());
        Ok(reader)
    }

    /// Starts the thread.
    fn start(confine: Option<fn() -> io::Result<()>>) -> io::Result<Arc<Self>> {
        let reader = Arc::new(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            inboxes: Mutex::default(),
        });
        let (ready, started) = mpsc::channel();
        let inside = reader.clone();
        let builder = thread::Builder::new().name("blk sockets".into());
        builder.spawn(move || {
            let confined = confine.map_or(Ok(()), |confine| confine());
            let goes_on = confined.is_ok();
            let _ = ready.send(confined);
            drop(ready);
            if goes_on {
                inside.read();
            }
        })?;
        started.recv().map_err(io::Error::other)??;
        Ok(reader)
    }

    /// Lets the thread read the socket of `inbox` from now on, until the result is dropped or the
    /// connection ends.
    ///
    /// # Errors
    /// Fails if the system refuses to add the socket to the epoll.
    pub(crate) fn add(self: &Arc<Self>, inbox: Arc<Inbox>) -> io::Result<Reading> {
        let mut inboxes = self.inboxes();
        let number = inboxes.next;
        inboxes.next += 1;
        let data = EventData::new_u64(number);
        epoll::add(&self.epoll, &inbox, data, EventFlags::IN)?;
        inboxes.by_number.insert(number, Arc::downgrade(&inbox));
        Ok(Reading {
            reader: self.clone(),
            number,
            inbox,
        })
    }

    /// Waits for sockets and reads them, for ever.
    fn read(&self) {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; EVENTS];
        loop {
            let count = match epoll::wait(&self.epoll, &mut events, None) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                // This cannot happen, because the epoll lives as long as this thread.
                Err(_) => 0,
            };
            thread::sleep(HEAD_START);
            for event in &events[..count] {
                let data = event.data;
                self.take(data.u64());
            }
        }
    }

    /// Reads the socket of the inbox `number`.
    fn take(&self, number: u64) {
        let inbox = self.inboxes().by_number.get(&number).cloned();
        if let Some(inbox) = inbox.as_ref().and_then(Weak::upgrade)
            && !inbox.take_ahead()
        {
            // The end of a connection would be reported by every wait.
            let _ = epoll::delete(&self.epoll, &inbox);
        }
    }

    /// Locks the list of inboxes.
    fn inboxes(&self) -> MutexGuard<'_, Inboxes> {
        // No code that holds the lock can panic halfway through a change.
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Returns the registered inbox.
    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.reader.inboxes().by_number.remove(&self.number);
        // This fails if the thread has removed the socket at the end of the connection.
        let _ = epoll::delete(&self.reader.epoll, &*self.inbox);
        // The thread may hold the inbox a moment longer, but must not be the one that closes files.
        self.inbox.clear();
    }
}
