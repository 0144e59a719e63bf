//! Sockets that are on their way to themselves: nobody can receive them, and they would last for
//! ever. A thread looks for them a second after a socket was closed while others were on their way,
//! and every ten seconds while any is.
//!
//! A socket that is not held but by messages on their way is a candidate. Those that lie in the
//! inbox of one that is held, or in that of a connection that waits at such a listener, can be
//! received, and so on from them. What is left can not: the messages are dropped. Descriptors are
//! put on their way and taken off it with the list locked, so what was found stays true. Work is
//! bounded by how many may be on their way, and by what their inboxes hold.

use super::rights::{self, ANY_SOCKETS, FLIGHTS, Flights, LOOKER, Slot, WANTED};
use super::state::{Socket, set_caller};
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
pub fn start(caller: fn() -> Credentials) {
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
/// accepted included.
fn for_each_slot(socket: &Socket, look: &mut dyn FnMut(&Slot)) {
    socket.inbox.for_each_slot(&mut *look);
    let listener = socket.state.lock().listener.clone();
    if let Some(listener) = listener {
        let waiting: Vec<_> = listener.backlog.lock().iter().cloned().collect();
        for embryo in &waiting {
            embryo.server.inbox.for_each_slot(&mut *look);
        }
    }
}

/// The sockets among the files of all of a socket's messages, by their keys.
fn carried(socket: &Socket, look: &mut dyn FnMut(usize)) {
    for_each_slot(socket, &mut |slot| {
        if let Some(rights) = &*slot.lock() {
            rights.files().iter().map(rights::key).for_each(&mut *look);
        }
    });
}

/// The sockets that nobody can receive. `files` are all that are on their way, which are held here
/// once more.
fn unreachable(flights: &Flights, files: &BTreeMap<usize, Arc<OpenFile>>) -> BTreeSet<usize> {
    let held_elsewhere = |key: &usize| {
        let file = &files[key];
        let count = flights.sockets.get(key).map_or(0, |flight| flight.count);
        Arc::strong_count(file) > count + 1
    };
    let mut lost: BTreeSet<usize> = files
        .keys()
        .filter(|key| !held_elsewhere(key))
        .copied()
        .collect();
    // What lies elsewhere than with candidates can be received: count what lies with them.
    let mut inside: BTreeMap<usize, usize> = BTreeMap::new();
    for key in &lost {
        if let Some(socket) = files[key].file().downcast::<Socket>() {
            carried(socket, &mut |key| *inside.entry(key).or_default() += 1);
        }
    }
    let mut alive: Vec<usize> = lost
        .iter()
        .filter(|key| {
            let count = flights.sockets.get(key).map_or(0, |flight| flight.count);
            inside.get(key).copied().unwrap_or(0) < count
        })
        .copied()
        .collect();
    // And what lies with those, and so on; each socket is looked at once.
    while let Some(key) = alive.pop() {
        if !lost.remove(&key) {
            continue;
        }
        if let Some(socket) = files[&key].file().downcast::<Socket>() {
            carried(socket, &mut |key| {
                if lost.contains(&key) {
                    alive.push(key);
                }
            });
        }
    }
    lost
}

/// Drops the messages that nobody can receive.
fn collect() {
    let mut dropped = Vec::new();
    let flights = FLIGHTS.lock();
    let files: BTreeMap<usize, Arc<OpenFile>> = flights
        .sockets
        .iter()
        .filter_map(|(key, flight)| Some((*key, flight.file.upgrade()?)))
        .collect();
    for key in unreachable(&flights, &files) {
        if let Some(socket) = files[&key].file().downcast::<Socket>() {
            for_each_slot(socket, &mut |slot| dropped.extend(slot.lock().take()));
        }
    }
    drop(flights);
    // Without the lock: either may be the last to hold a socket.
    drop(dropped);
    for file in files.into_values() {
        file.close();
    }
}
