//! Sockets that are on their way to themselves: nobody can receive them, and they would last for
//! ever. A thread looks for them a second after a socket was closed while others were on their way,
//! and every ten seconds while any is.
//!
//! A socket that is not held but by messages on their way is a candidate. Those that lie in the
//! inbox of one that is held, or in that of a connection that waits at such a listener, can be
//! received, and so on from them. What is left can not: the messages are dropped. Descriptors are
//! put on their way and taken off it with the list locked, so what was found stays true. Work is
//! bounded by how many may be on their way, and by what their inboxes hold.

use super::rights::{self, ANY_SOCKETS, Chain, FLIGHTS, Flights, LOOKER, Slot, WANTED};
use super::state::{Embryo, Socket, set_caller};
use crate::fs::OpenFile;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::socket::control::Credentials;
use machine::arch::clock::{self, Nanos};
use machine::sched;

/// How long the thread waits for further closes before it looks.
const DELAY: Nanos = Nanos::from_secs(1);
/// How often it looks while a socket is on its way.
const INTERVAL: Nanos = Nanos::from_secs(10);

/// Starts the thread; `caller` says who calls.
pub fn start(caller: [fn() -> Credentials; 2]) {
    set_caller(caller);
    sched::spawn_kernel("ksocketd", run);
}

fn run() {
    loop {
        let deadline = if ANY_SOCKETS.load(Ordering::Relaxed) {
            clock::now().saturating_add(INTERVAL)
        } else {
            Nanos::MAX
        };
        // Acquire: pairs with the Release in `rights::look_soon`.
        let wanted = || WANTED.load(Ordering::Acquire);
        if deadline == Nanos::MAX {
            LOOKER.wait_uninterruptible(|| wanted() || ANY_SOCKETS.load(Ordering::Relaxed));
        } else {
            LOOKER.wait_uninterruptible_deadline(wanted, deadline);
        }
        sched::sleep_until(clock::now().saturating_add(DELAY));
        WANTED.store(false, Ordering::Release);
        collect();
    }
}

/// Shows the places of descriptors in what a socket is to receive, its connections that wait to be
/// accepted included. Those are `held`: dropping one may drop messages, not with the list locked.
/// `None`: memory is short.
fn for_each_slot(
    socket: &Socket,
    held: &mut Vec<Arc<Embryo>>,
    look: &mut dyn FnMut(&Slot),
) -> Option<()> {
    socket.inbox.for_each_slot(&mut *look);
    let listener = socket.state.lock().listener.clone();
    if let Some(listener) = listener {
        let first = held.len();
        let waiting = listener.backlog.lock().len();
        held.try_reserve(waiting).ok()?;
        let backlog = listener.backlog.lock();
        // Nothing is allocated under its lock: with more than there were the next round does it.
        if backlog.len() > held.capacity() - first {
            return None;
        }
        held.extend(backlog.iter().cloned());
        drop(backlog);
        for embryo in &held[first..] {
            embryo.server.inbox.for_each_slot(&mut *look);
        }
    }
    Some(())
}

/// The sockets among the files of all of a socket's messages, by their keys.
fn carried(
    socket: &Socket,
    held: &mut Vec<Arc<Embryo>>,
    look: &mut dyn FnMut(usize),
) -> Option<()> {
    for_each_slot(socket, held, &mut |slot| {
        if let Some(rights) = &*slot.lock() {
            rights.files().iter().map(rights::key).for_each(&mut *look);
        }
    })
}

/// The sockets that nobody can receive. `files` are all that are on their way, which are held here
/// once more. `None`: memory is short. What looks into inboxes allocates nothing: it is under their
/// locks.
fn unreachable(
    flights: &Flights,
    files: &BTreeMap<usize, Arc<OpenFile>>,
    held: &mut Vec<Arc<Embryo>>,
) -> Option<BTreeSet<usize>> {
    let on_their_way = |key: &usize| flights.sockets.get(key).map_or(0, |flight| flight.count);
    let mut lost: BTreeSet<usize> = BTreeSet::new();
    // How often each lies with candidates: what lies elsewhere can be received.
    let mut inside: BTreeMap<usize, usize> = BTreeMap::new();
    for (key, file) in files {
        let held_elsewhere = Arc::strong_count(file) > on_their_way(key) + 1;
        if !held_elsewhere {
            lost.insert(*key);
            inside.insert(*key, 0);
        }
    }
    for key in &lost {
        if let Some(socket) = files[key].file().downcast::<Socket>() {
            carried(socket, held, &mut |key| {
                if let Some(count) = inside.get_mut(&key) {
                    *count += 1;
                }
            })?;
        }
    }
    // Each comes in here once, when it is not lost any more.
    let mut alive: Vec<usize> = Vec::new();
    alive.try_reserve_exact(lost.len()).ok()?;
    for (key, count) in &inside {
        if *count < on_their_way(key) {
            lost.remove(key);
            alive.push(*key);
        }
    }
    // And what lies with those, and so on; each socket is looked at once.
    while let Some(key) = alive.pop() {
        if let Some(socket) = files[&key].file().downcast::<Socket>() {
            carried(socket, held, &mut |key| {
                if lost.remove(&key) {
                    alive.push(key);
                }
            })?;
        }
    }
    Some(lost)
}

/// Drops the messages that nobody can receive. Where memory is short the next round does the rest.
fn collect() {
    let mut dropped = Chain::default();
    let mut held = Vec::new();
    let mut files: BTreeMap<usize, Arc<OpenFile>> = BTreeMap::new();
    let flights = FLIGHTS.lock();
    for (key, flight) in &flights.sockets {
        if let Some(file) = flight.file.upgrade() {
            files.insert(*key, file);
        }
    }
    for key in unreachable(&flights, &files, &mut held).unwrap_or_default() {
        if let Some(socket) = files[&key].file().downcast::<Socket>() {
            let taken = for_each_slot(socket, &mut held, &mut |slot| {
                if let Some(rights) = slot.lock().take() {
                    dropped.add(rights);
                }
            });
            if taken.is_none() {
                break;
            }
        }
    }
    drop(flights);
    // Without the lock: any of these may be the last to hold a socket.
    drop(dropped);
    drop(held);
    for file in files.into_values() {
        // A close has this thread look once more, which is for nothing where others hold it.
        if Arc::strong_count(&file) > 1 {
            drop(file);
        } else {
            file.close();
        }
        sched::cond_resched();
    }
}
