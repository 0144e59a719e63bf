//! Notifies instances of memory pressure, each on its own thread.
//!
//! An instance registers and gets a [`Registration`]. It has a mailbox with the time of the latest
//! pressure event, and a descriptor that becomes readable with an event. An event stores its time
//! in every mailbox and waits for none. The callback ([`ReclaimMemory`]) runs on the instance's
//! thread, when that calls [`Registration::deliver`]. So a slow or dead instance delays no other,
//! and the callback needs no lock against its own thread. Dropping the registration unregisters, at
//! any time. If several events occur before an instance looks, it sees only the latest.

use super::growth::Growth;
use super::latest::Latest;
use crate::time::Micros;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which [`Pings::wait_unanswered`] checks for answers.
const PING_INTERVAL: Duration = Duration::from_millis(1);

/// The callback of an instance for memory pressure, which runs on the instance's thread.
pub trait ReclaimMemory {
    /// Frees the memory that the instance can spare. `event` is the time at which the pressure was
    /// noticed.
    fn reclaim_memory(&mut self, event: Micros);
}

#[derive(Debug)]
struct Mailbox {
    latest: Latest,
    /// Number of times that a thread asked the instance to confirm that it runs.
    pings: AtomicU64,
    /// The latest ping that the instance has answered.
    answers: AtomicU64,
    wake: OwnedFd,
}

impl Mailbox {
    /// Asks the instance to confirm that it runs. Returns the ping's number, which the answer
    /// must reach.
    fn ping(&self) -> u64 {
        // Release: pairs with the Acquire in `asked`, so that an answering instance sees stores
        // made before the ping.
        let ping = self.pings.fetch_add(1, Ordering::Release) + 1;
        self.wake();
        ping
    }

    /// Returns the number of the latest ping.
    fn last_ping(&self) -> u64 {
        // Acquire: pairs with the Release in `ping`.
        self.pings.load(Ordering::Acquire)
    }

    fn answer(&self, ping: u64) {
        // Release: pairs with the Acquire in `answered`. Only the instance stores here.
        self.answers.store(ping, Ordering::Release);
    }

    /// Returns the number of the latest ping that the instance has answered.
    fn answered(&self) -> u64 {
        // Acquire: pairs with the Release in `answer`.
        self.answers.load(Ordering::Acquire)
    }

    fn wake(&self) {
        // The write does not block. If the event counter is full, the descriptor is readable
        // already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

#[derive(Debug, Default)]
struct Members {
    next: u64,
    mailboxes: BTreeMap<u64, (String, Arc<Mailbox>)>,
}

#[derive(Debug, Default)]
struct Inner {
    members: Mutex<Members>,
    /// The counter to which pools report their growth, once a source of pressure is running.
    growth: OnceLock<Growth>,
}

/// All instances and other programs to notify of memory pressure. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<Inner>);

/// An instance's membership in the [`Registry`]. Dropping it unregisters the instance. The
/// descriptor becomes readable at an event, a ping, or a wake-up.
#[derive(Debug)]
pub struct Registration {
    registry: Registry,
    id: u64,
    mailbox: Arc<Mailbox>,
    seen: Micros,
    /// The latest ping at the last [`Registration::deliver`], which [`Registration::confirm`]
    /// answers.
    ping: u64,
    /// Number of pages that the instance's pool had taken from the system at the last report.
    fetched: u64,
}

impl Registry {
    /// Registers an instance under `name`, by which it can be squeezed alone. Several instances may
    /// have the same name. Returns the registration, which lasts until it is dropped.
    ///
    /// # Errors
    /// Fails if no event counter can be made (`eventfd`).
    pub fn register(&self, name: &str) -> io::Result<Registration> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mailbox = Arc::new(Mailbox {
            latest: Latest::new(),
            pings: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            wake,
        });
        let mut members = self.members();
        let id = members.next;
        members.next += 1;
        members
            .mailboxes
            .insert(id, (name.to_owned(), mailbox.clone()));
        Ok(Registration {
            registry: self.clone(),
            id,
            mailbox,
            seen: Micros(0),
            ping: 0,
            fetched: 0,
        })
    }

    /// Notifies all instances of a pressure event at time `event`, so that they free memory. Does
    /// not wait for them. Returns the number of instances, including those that have a later event
    /// already.
    pub fn pressure(&self, event: Micros) -> usize {
        self.ask(event, |_| true)
    }

    /// Notifies the instances called `name` of a pressure event at time `event`, so that they free
    /// memory. Does not wait for them. Returns their number, 0 if none has this name.
    pub fn squeeze(&self, name: &str, event: Micros) -> usize {
        self.ask(event, |member| member == name)
    }

    /// Asks the instances whose name is `wanted` to confirm that their threads run, and wakes them.
    /// Returns at once; [`Pings::wait_unanswered`] waits for the answers.
    pub fn ping(&self, wanted: impl Fn(&str) -> bool) -> Pings {
        let members = self.members();
        let asked = members.mailboxes.values().filter(|(name, _)| wanted(name));
        let asked = asked.map(|(name, mailbox)| Ping {
            name: name.clone(),
            number: mailbox.ping(),
            mailbox: mailbox.clone(),
        });
        Pings(asked.collect())
    }

    fn ask(&self, event: Micros, wanted: impl Fn(&str) -> bool) -> usize {
        let members = self.members();
        let asked = members.mailboxes.values().filter(|(name, _)| wanted(name));
        asked
            .map(|(_, mailbox)| {
                if mailbox.latest.post(event) {
                    mailbox.wake();
                }
            })
            .count()
    }

    /// Returns the number of registered instances.
    pub fn len(&self) -> usize {
        self.members().mailboxes.len()
    }

    /// Returns whether no instance is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes all instances report the growth of their pools to `growth`. Only the first call has an
    /// effect.
    pub fn tell_growth(&self, growth: Growth) {
        let _ = self.0.growth.set(growth);
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // No code that holds the lock can panic halfway through a change.
        self.0
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// Returns whether an event has arrived that [`Self::deliver`] has not handled, or a ping that
    /// [`Self::confirm`] has not answered. A wake-up by a [`Waker`] does not count.
    pub fn is_asked(&self) -> bool {
        self.mailbox.latest.since(self.seen).is_some()
            || self.mailbox.last_ping() != self.mailbox.answered()
    }

    /// Runs the callback of `instance` if an event has arrived since the last call. Makes the
    /// descriptor unreadable. Returns whether the callback ran. Does not wait. Call
    /// [`Self::confirm`] when the instance has done what follows from the callback.
    pub fn deliver(&mut self, instance: &mut impl ReclaimMemory) -> bool {
        // The event counter is reset before the mailbox is read. An event that is posted in between
        // makes the descriptor readable again, so that none is missed.
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.mailbox.wake, &mut counter);
        self.ping = self.mailbox.last_ping();
        let event = self.mailbox.latest.since(self.seen);
        if let Some(event) = event {
            self.seen = event;
            instance.reclaim_memory(event);
        }
        event.is_some()
    }

    /// Answers the pings that had arrived before the last [`Self::deliver`]. The instance has done
    /// all that was asked before them.
    pub fn confirm(&self) {
        self.mailbox.answer(self.ping);
    }

    /// Reports that the instance's pool has taken `fetched` pages from the system since it was
    /// made. Adds the pages since the last report to the process's [`Growth`] counter.
    pub fn fetched(&mut self, fetched: u64) {
        let more = fetched.saturating_sub(self.fetched);
        if more > 0
            && let Some(growth) = self.registry.0.growth.get()
        {
            growth.add(more);
        }
        self.fetched = fetched;
    }

    /// Returns a handle by which other threads can make this registration's descriptor readable
    /// without an event.
    pub fn waker(&self) -> Waker {
        Waker(self.mailbox.clone())
    }
}

#[derive(Debug)]
struct Ping {
    name: String,
    number: u64,
    mailbox: Arc<Mailbox>,
}

/// Instances that [`Registry::ping`] has asked to confirm that their threads run.
#[derive(Debug)]
pub struct Pings(Vec<Ping>);

impl Pings {
    /// Returns the number of instances asked.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no instance was asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an instance called `name` is among those asked.
    pub fn include(&self, name: &str) -> bool {
        self.0.iter().any(|ping| ping.name == name)
    }

    /// Waits until all instances have answered or unregistered, at most for `limit`. Returns the
    /// names of those that have not answered by then; none means that all have.
    pub fn wait_unanswered(mut self, limit: Duration) -> Vec<String> {
        let begin = Instant::now();
        loop {
            self.0.retain(|ping| ping.mailbox.answered() < ping.number);
            if self.0.is_empty() || begin.elapsed() >= limit {
                return self.0.into_iter().map(|ping| ping.name).collect();
            }
            std::thread::sleep(PING_INTERVAL);
        }
    }
}

/// A handle that wakes an instance's thread from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Mailbox>);

impl Waker {
    /// Wakes the instance's thread, by making its registration's descriptor readable. Does not
    /// block.
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl AsFd for Registration {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.wake.as_fd()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The instance has left, so no thread must wait for its answer.
        self.mailbox.answer(u64::MAX);
        self.registry.members().mailboxes.remove(&self.id);
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
