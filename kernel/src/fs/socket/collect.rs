//! Collects sockets that are in flight to themselves. No task can receive them, so they would last
//! for ever. A thread looks for them a second after a socket was closed while others were in
//! flight. While any socket is in flight it also looks every ten seconds.
//!
//! A socket that is held only by messages in flight is a candidate. A candidate can be received if
//! it lies in the inbox of a socket that is not one. The same holds for the inbox of a connection
//! in the backlog of such a socket. What lies in the inboxes of those can be received too, and
//! so on. The messages of all other candidates are dropped. Descriptors enter and leave flight with
//! the list locked, so the result stays true. The work is bounded by the number of descriptors in
//! flight, and by the contents of their inboxes.

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
/// How often it looks while a socket is in flight.
const INTERVAL: Nanos = Nanos::from_secs(10);

/// Starts the kernel thread `ksocketd`, which drops sockets in flight that no task can receive.
/// Also stores `caller`, for messages and `SO_PEERCRED`: two functions that return the credentials
/// of the process that calls them, the first with its real user, the second with its effective
/// user.
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

/// Calls `look` with the slot for descriptors of each segment in the inbox of `socket`. Includes
/// the inboxes of connections in its backlog. Those are added to `held`, because dropping one may
/// drop messages, which the locked list does not allow. Returns `None` if memory is short.
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
        // No allocation is made under the backlog's lock. If it has grown, the next round does the
        // work.
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

/// Calls `look` with the key of each file that the messages of `socket` carry. `held` is as for
/// [`for_each_slot`]. Returns `None` if memory is short.
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

/// Returns the sockets that no task can receive. `files` are all sockets in flight, each held once
/// more by this map. Returns `None` if memory is short. What looks into inboxes allocates nothing,
/// because it runs under their locks.
fn unreachable(
    flights: &Flights,
    files: &BTreeMap<usize, Arc<OpenFile>>,
    held: &mut Vec<Arc<Embryo>>,
) -> Option<BTreeSet<usize>> {
    let on_their_way = |key: &usize| flights.sockets.get(key).map_or(0, |flight| flight.count);
    let mut lost: BTreeSet<usize> = BTreeSet::new();
    // How often each candidate lies in inboxes of candidates. One that also lies elsewhere can be
    // received.
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
    // Each candidate is added once, when it is found to be alive.
    let mut alive: Vec<usize> = Vec::new();
    alive.try_reserve_exact(lost.len()).ok()?;
    for (key, count) in &inside {
        if *count < on_their_way(key) {
            lost.remove(key);
            alive.push(*key);
        }
    }
    // Continues with the files in their inboxes. Each socket is looked at once.
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

/// Drops the messages that no task can receive. If memory is short, the next round does the rest.
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
    // Dropped without the lock, as each of these may be the last reference to a socket.
    drop(dropped);
    drop(held);
    for file in files.into_values() {
        // Closing has this thread look again, which is useless while others hold the file.
        if Arc::strong_count(&file) > 1 {
            drop(file);
        } else {
            file.close();
        }
        sched::cond_resched();
    }
}
