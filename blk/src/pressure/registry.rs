//! Every back-end is asked, each in its own time.
//!
//! An instance registers and gets a [`Registration`]: a mailbox that holds the time of the latest
//! pressure event, and a descriptor that becomes readable with it. An event leaves its time in
//! every mailbox and goes on; the callback ([`ReclaimMemory`]) runs where the instance runs, when
//! it calls [`Registration::deliver`]. So an instance that is slow or dead delays nobody, a callback
//! needs no lock against its own worker, and unregistering, which is dropping the registration, is
//! safe at any time. Events that come faster than an instance looks are one to it: the latest.

use super::growth::Growth;
use crate::time::Micros;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
#[cfg(loom)]
use {loom::sync::Arc, loom::sync::atomic::AtomicU64, loom::sync::atomic::Ordering};
#[cfg(not(loom))]
use {std::sync::Arc, std::sync::atomic::AtomicU64, std::sync::atomic::Ordering};

/// How often it is looked who has answered.
const QUESTION_INTERVAL: Duration = Duration::from_millis(1);

/// What a back-end does when memory is tight.
pub trait ReclaimMemory {
    /// Give back what can be given back. `event` is when the pressure was noticed.
    fn reclaim_memory(&mut self, event: Micros);
}

/// The time of the latest event; 0 if there was none yet.
#[derive(Debug)]
struct Latest(AtomicU64);

impl Latest {
    fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether `event` is news.
    fn post(&self, event: Micros) -> bool {
        // Release: pairs with the Acquire in `since`, so that who sees the event also sees what
        // was done before it was posted (a knob that was set, say). The maximum, for two sources
        // may post at once and the older event must not hide the younger.
        self.0.fetch_max(event.0, Ordering::Release) < event.0
    }

    /// The latest event if it is not `seen`.
    fn since(&self, seen: Micros) -> Option<Micros> {
        // Acquire: pairs with the Release in `post`.
        let latest = Micros(self.0.load(Ordering::Acquire));
        (latest > seen).then_some(latest)
    }
}

#[derive(Debug)]
struct Mailbox {
    latest: Latest,
    /// How often somebody wanted to know that the instance is there, and up to where it was.
    questions: AtomicU64,
    answers: AtomicU64,
    wake: OwnedFd,
}

impl Mailbox {
    /// Asks the instance to show that it is there. Returns which answer will do.
    fn question(&self) -> u64 {
        // Release: pairs with the Acquire in `asked`: what was set before is seen by who answers.
        let question = self.questions.fetch_add(1, Ordering::Release) + 1;
        self.wake();
        question
    }

    /// The latest question.
    fn asked(&self) -> u64 {
        // Acquire: pairs with the Release in `question`.
        self.questions.load(Ordering::Acquire)
    }

    fn answer(&self, question: u64) {
        // Release: pairs with the Acquire in `answered`. Only the instance stores here.
        self.answers.store(question, Ordering::Release);
    }

    /// Up to which question the instance has answered.
    fn answered(&self) -> u64 {
        // Acquire: pairs with the Release in `answer`.
        self.answers.load(Ordering::Acquire)
    }

    fn wake(&self) {
        // It does not block; if the counter is full, the descriptor is readable already.
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
    /// Where pools tell that they grow, once somebody listens.
    growth: OnceLock<Growth>,
}

/// All back-ends that want to be asked.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<Inner>);

/// An instance's place in the [`Registry`]. Dropping it unregisters.
#[derive(Debug)]
pub struct Registration {
    registry: Registry,
    id: u64,
    mailbox: Arc<Mailbox>,
    seen: Micros,
    /// Pages that its pool had taken from the system when that was last told.
    fetched: u64,
}

impl Registry {
    /// Registers an instance under a name by which it can be asked alone. Names need not differ.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn register(&self, name: &str) -> io::Result<Registration> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mailbox = Arc::new(Mailbox {
            latest: Latest::new(),
            questions: AtomicU64::new(0),
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
            fetched: 0,
        })
    }

    /// Memory is tight: asks everybody once. Returns how many were asked.
    pub fn pressure(&self, event: Micros) -> usize {
        self.ask(event, |_| true)
    }

    /// Asks those of one name. Returns how many there are.
    pub fn squeeze(&self, name: &str, event: Micros) -> usize {
        self.ask(event, |member| member == name)
    }

    /// Asks those of one name, or everybody, to show that they are there.
    pub fn question(&self, name: Option<&str>) -> Questions {
        let members = self.members();
        let mailboxes = members.mailboxes.values();
        let asked = mailboxes.filter(|(member, _)| name.is_none_or(|name| name == member));
        let asked = asked.map(|(name, mailbox)| Question {
            name: name.clone(),
            number: mailbox.question(),
            mailbox: mailbox.clone(),
        });
        Questions(asked.collect())
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

    /// How many are registered.
    pub fn len(&self) -> usize {
        self.members().mailboxes.len()
    }

    /// Whether nobody is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Has all members tell `growth` what their pools take. The first one is told for ever.
    pub fn tell_growth(&self, growth: Growth) {
        let _ = self.0.growth.set(growth);
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // Nothing that holds the lock can panic halfway through a change.
        self.0
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// Whether there was an event or a question since the last [`Self::deliver`].
    pub fn is_asked(&self) -> bool {
        self.mailbox.latest.since(self.seen).is_some()
            || self.mailbox.asked() != self.mailbox.answered()
    }

    /// Runs the callback if there was an event since the last call. Says whether.
    pub fn deliver(&mut self, instance: &mut impl ReclaimMemory) -> bool {
        // Emptied before the mailbox is read: an event that is posted in between makes the
        // descriptor readable again, so none is slept over.
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.mailbox.wake, &mut counter);
        let question = self.mailbox.asked();
        let event = self.mailbox.latest.since(self.seen);
        if let Some(event) = event {
            self.seen = event;
            instance.reclaim_memory(event);
        }
        self.mailbox.answer(question);
        event.is_some()
    }

    /// The instance's pool has taken `fetched` pages from the system since it was made.
    pub fn fetched(&mut self, fetched: u64) {
        let more = fetched.saturating_sub(self.fetched);
        if more > 0
            && let Some(growth) = self.registry.0.growth.get()
        {
            growth.add(more);
        }
        self.fetched = fetched;
    }

    /// Makes the descriptor readable without an event, for a worker that waits on it alone.
    pub fn waker(&self) -> Waker {
        Waker(self.mailbox.clone())
    }
}

#[derive(Debug)]
struct Question {
    name: String,
    number: u64,
    mailbox: Arc<Mailbox>,
}

/// Who was asked to show that it is there.
#[derive(Debug)]
pub struct Questions(Vec<Question>);

impl Questions {
    /// How many were asked.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody was.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of this name was asked.
    pub fn include(&self, name: &str) -> bool {
        self.0.iter().any(|question| question.name == name)
    }

    /// The names of those that did not answer within so long. Returns as soon as all have.
    pub fn silent(mut self, limit: Duration) -> Vec<String> {
        let begin = Instant::now();
        loop {
            self.0
                .retain(|question| question.mailbox.answered() < question.number);
            if self.0.is_empty() || begin.elapsed() >= limit {
                return self.0.into_iter().map(|question| question.name).collect();
            }
            std::thread::sleep(QUESTION_INTERVAL);
        }
    }
}

/// Wakes an instance's worker from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Mailbox>);

impl Waker {
    /// Makes the registration's descriptor readable.
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
        // Nobody waits for one that left.
        self.mailbox.answer(u64::MAX);
        self.registry.members().mailboxes.remove(&self.id);
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
