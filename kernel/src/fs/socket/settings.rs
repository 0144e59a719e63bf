//! The options of a socket that programs set (`setsockopt`).

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use machine::arch::clock::{self, Nanos};

/// `SO_RCVTIMEO` or `SO_SNDTIMEO`: how long a call waits; 0 is for ever.
#[derive(Debug, Default)]
pub struct Timeout(AtomicU64);

impl Timeout {
    /// In nanoseconds.
    pub fn get(&self) -> u64 {
        // Relaxed (all of this file): an option orders nothing.
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set(&self, nanos: u64) {
        self.0.store(nanos, Ordering::Relaxed);
    }

    /// When a call that begins now gives up.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        match self.get() {
            0 => None,
            nanos => Some(clock::now().saturating_add(Nanos(nanos))),
        }
    }
}

/// A switch.
#[derive(Debug, Default)]
pub struct Switch(AtomicBool);

impl Switch {
    /// Whether it is on.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }
}

/// A number.
#[derive(Debug, Default)]
pub struct Number(AtomicU32);

impl Number {
    /// What it is.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// All options.
#[derive(Debug, Default)]
pub struct Settings {
    /// How long a receiver waits.
    pub receive_timeout: Timeout,
    /// How long a sender waits.
    pub send_timeout: Timeout,
    /// `SO_RCVBUF`: the bytes that UDP holds for it.
    pub receive_buffer: AtomicUsize,
    /// `SO_PASSCRED`: messages come with who sent them.
    pub pass_credentials: Switch,
    /// `SO_REUSEADDR`.
    pub reuse_address: Switch,
    /// `SO_REUSEPORT`.
    pub reuse_port: Switch,
    /// `SO_KEEPALIVE`: kept and shown; a peer on the same machine needs no probes.
    pub keep_alive: Switch,
    /// `SO_BROADCAST`: kept and shown.
    pub broadcast: Switch,
    /// `SO_OOBINLINE`: kept and shown; there are no urgent bytes.
    pub urgent_inline: Switch,
    /// `SO_DONTROUTE`: kept and shown.
    pub no_route: Switch,
    /// `SO_PRIORITY`: kept and shown.
    pub priority: Number,
    /// `SO_RCVLOWAT`; 0 is 1.
    pub receive_least: Number,
    /// `SO_LINGER`: on, and seconds. What was sent is with the peer already, so that a close waits
    /// for nothing; with 0 seconds it resets the connection.
    pub linger: Switch,
    /// Its seconds.
    pub linger_seconds: Number,
    /// `TCP_NODELAY`: kept and shown; nothing is delayed.
    pub no_delay: Switch,
    /// `TCP_CORK`: kept and shown; nothing is held back.
    pub cork: Switch,
    /// `TCP_QUICKACK` is on unless it was switched off: kept and shown.
    pub slow_ack: Switch,
    /// `TCP_KEEPIDLE` and its like, in the order that the calls have them: kept and shown. 0: Linux's
    /// default.
    pub tcp: [Number; 6],
    /// `IP_TOS`: kept and shown.
    pub service: Number,
    /// `IP_TTL`: kept and shown. 0: Linux's default.
    pub hops: Number,
    /// `IPV6_V6ONLY`.
    pub v6_only: Switch,
}
