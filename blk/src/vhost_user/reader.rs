//! A thread that reads the sockets of all front-ends of the process while their disks are busy.
//!
//! It leaves a disk's thread some time to take a message itself, which needs no other thread to be
//! woken. What lies in a socket after that, it takes into the disk's [`Inbox`]. It does nothing
//! else, so no front-end keeps it from the socket of another.

use super::inbox::Inbox;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;

/// The time that a disk's thread has to take a message by itself.
const HEAD_START: Duration = Duration::from_millis(1);
/// Sockets that are looked at after one wait; others follow after the next.
const EVENTS: usize = 64;

/// The sockets that are read.
#[derive(Debug)]
pub(crate) struct Reader {
    epoll: OwnedFd,
    inboxes: Mutex<Inboxes>,
}

#[derive(Debug, Default)]
struct Inboxes {
    next: u64,
    by_number: BTreeMap<u64, Weak<Inbox>>,
}

/// An inbox that is read until this is dropped.
#[derive(Debug)]
pub(crate) struct Reading {
    reader: Arc<Reader>,
    number: u64,
    inbox: Arc<Inbox>,
}

impl Reader {
    /// Returns the reader of this process, and starts its thread if there is none yet. The thread
    /// calls `confine` first.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left, or what `confine` says.
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

    /// Has the thread read what comes for `inbox`.
    ///
    /// # Errors
    /// If the system has no memory for it.
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

    /// Reads for ever.
    fn read(&self) {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; EVENTS];
        loop {
            let count = match epoll::wait(&self.epoll, &mut events, None) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                // It cannot come: the set lives as long as this thread.
                Err(_) => 0,
            };
            thread::sleep(HEAD_START);
            for event in &events[..count] {
                let data = event.data;
                self.take(data.u64());
            }
        }
    }

    fn take(&self, number: u64) {
        let inbox = self.inboxes().by_number.get(&number).cloned();
        if let Some(inbox) = inbox.as_ref().and_then(Weak::upgrade)
            && !inbox.take_ahead()
        {
            // The end of a socket would be told again and again.
            let _ = epoll::delete(&self.epoll, &inbox);
        }
    }

    fn inboxes(&self) -> MutexGuard<'_, Inboxes> {
        // An entry is there or not.
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// The inbox.
    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.reader.inboxes().by_number.remove(&self.number);
        // It fails if the thread took it out before, at the end of the socket.
        let _ = epoll::delete(&self.reader.epoll, &*self.inbox);
        // The thread may have the inbox for a moment yet; it is not to close files.
        self.inbox.clear();
    }
}
