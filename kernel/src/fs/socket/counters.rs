//! What sockets count for `/proc/net/snmp`.

use core::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one to the counter.
    pub(super) fn count(&self) {
        // Relaxed (both): a count orders nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the value of the counter.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Connections of TCP that were begun to a listener. Both sides are on this machine.
pub static ACTIVE_OPENS: Counter = Counter::new();
/// Connections of TCP that were begun to an address without a listener.
pub static ATTEMPT_FAILS: Counter = Counter::new();
/// Messages of UDP that were sent.
pub static UDP_OUT: Counter = Counter::new();
/// Messages of UDP that reached a socket.
pub static UDP_IN: Counter = Counter::new();
/// Messages of UDP to ports without a socket.
pub static UDP_NO_PORT: Counter = Counter::new();
/// Messages of UDP that were dropped because an inbox was full.
pub static UDP_NO_ROOM: Counter = Counter::new();
