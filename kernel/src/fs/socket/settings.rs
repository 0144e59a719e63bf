//! The options of a socket that programs set (`setsockopt`).

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use logic::socket::options::{Kept, NUMBERS, SWITCHES};
use logic::socket::packet::Told;
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

/// What a receiver is told of packets.
#[derive(Debug, Default)]
pub struct ToldSet(AtomicU32);

impl ToldSet {
    /// All of it.
    pub fn get(&self) -> Told {
        Told::from_bits_truncate(self.0.load(Ordering::Relaxed))
    }

    /// Adds it, or takes it away.
    pub fn set(&self, told: Told, on: bool) {
        if on {
            self.0.fetch_or(told.bits(), Ordering::Relaxed);
        } else {
            self.0.fetch_and(!told.bits(), Ordering::Relaxed);
        }
    }
}

/// The options that are kept for programs to read again. Each is kept as the difference from its
/// first value, so that a new socket has zeros.
#[derive(Debug, Default)]
pub struct KeptValues {
    switches: AtomicU64,
    numbers: [AtomicI32; NUMBERS.len()],
}

impl KeptValues {
    /// What an option is.
    pub fn get(&self, kept: Kept) -> i32 {
        match kept {
            Kept::Switch(at) => self.is_on(at).into(),
            Kept::Number(at) => {
                let changed = self.numbers[at].load(Ordering::Relaxed);
                NUMBERS[at].initial.wrapping_add(changed)
            }
        }
    }

    /// Whether the switch at this place of [`SWITCHES`] is on.
    pub fn is_on(&self, at: usize) -> bool {
        let changed = self.switches.load(Ordering::Relaxed) & (1 << at) != 0;
        SWITCHES[at].initial != changed
    }

    /// Sets an option.
    pub fn set(&self, kept: Kept, value: i32) {
        match kept {
            Kept::Switch(at) if SWITCHES[at].initial == (value != 0) => {
                self.switches.fetch_and(!(1 << at), Ordering::Relaxed);
            }
            Kept::Switch(at) => {
                self.switches.fetch_or(1 << at, Ordering::Relaxed);
            }
            Kept::Number(at) => {
                let changed = value.wrapping_sub(NUMBERS[at].initial);
                self.numbers[at].store(changed, Ordering::Relaxed);
            }
        }
    }

    fn inherit(&self, parent: &Self) {
        let switches = parent.switches.load(Ordering::Relaxed);
        self.switches.store(switches, Ordering::Relaxed);
        for (ours, theirs) in self.numbers.iter().zip(&parent.numbers) {
            ours.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// How a receiver is told when a message came.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// `SO_TIMESTAMP`.
    Micros = 1,
    /// `SO_TIMESTAMPNS`.
    Nanos = 2,
    /// `SO_TIMESTAMP_NEW`.
    NewMicros = 3,
    /// `SO_TIMESTAMPNS_NEW`.
    NewNanos = 4,
}

impl Stamps {
    /// Every way.
    const ALL: [Self; 4] = [Self::Micros, Self::Nanos, Self::NewMicros, Self::NewNanos];
}

/// When idle connections are probed where a program does not say so (`net.ipv4.tcp_keepalive_*`):
/// kept and shown by the options. Relaxed: values of their own.
#[derive(Debug)]
pub struct KeepAlive {
    /// Seconds before the first probe.
    pub idle: AtomicU64,
    /// Seconds between probes.
    pub interval: AtomicU64,
    /// How many there are.
    pub probes: AtomicU64,
}

/// Those of all connections.
pub static KEEP_ALIVE: KeepAlive = KeepAlive {
    idle: AtomicU64::new(7200),
    interval: AtomicU64::new(75),
    probes: AtomicU64::new(9),
};

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
    /// `SO_DONTROUTE`: kept and shown.
    pub no_route: Switch,
    /// `SO_BINDTODEVICE`: the interface's number, or 0; kept and shown, as there is one.
    pub interface: Number,
    /// `TCP_CONGESTION` is `reno`: kept and shown.
    pub reno: Switch,
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
    /// `TCP_CORK` or `UDP_CORK`: what is sent is held back.
    pub cork: Switch,
    /// `TCP_QUICKACK` is on unless it was switched off: kept and shown.
    pub slow_ack: Switch,
    /// `TCP_KEEPIDLE` and its like, in the order that the calls have them: kept and shown. 0: Linux's
    /// default.
    pub tcp: [Number; 6],
    /// `IP_TOS`: UDP tells its receivers.
    pub service: Number,
    /// `IP_TTL`: UDP tells its receivers. 0: Linux's default.
    pub hops: Number,
    /// `IP_MTU_DISCOVER` and 1: kept and shown; no packet is too large for the loopback interface.
    /// 0: Linux's default.
    pub discovery: Number,
    /// `IPV6_TCLASS`: UDP tells its receivers.
    pub service6: Number,
    /// `IPV6_UNICAST_HOPS` and 1: UDP tells its receivers. 0: Linux's default.
    pub hops6: Number,
    /// `IPV6_MTU_DISCOVER`, likewise.
    pub discovery6: Number,
    /// `IPV6_DONTFRAG`: kept and shown.
    pub whole: Switch,
    /// What comes with received messages.
    pub told: ToldSet,
    /// `UDPLITE_SEND_CSCOV`: bytes of a message, its head included, that are checked; 0 is all.
    pub coverage: Number,
    /// `UDPLITE_RECV_CSCOV` and 1: messages with fewer are lost. 0: none are.
    pub least_coverage: Number,
    /// `IPV6_V6ONLY`.
    pub v6_only: Switch,
    /// The options without a place of their own here.
    pub kept: KeptValues,
    /// `SO_DEBUG`: kept and shown.
    pub debug: Switch,
    /// `SO_LOCK_FILTER`: kept and shown, as no filter can be attached.
    pub lock_filter: Switch,
    /// The bits of `SO_MAX_PACING_RATE` that are 0: kept and shown.
    pub unpaced: AtomicU64,
    /// [`Stamps`], or 0.
    pub(super) stamps: Number,
    /// The flags of `SO_TIMESTAMPING`, and whether those are of its newer form.
    pub(super) stamping: Number,
    pub(super) new_stamping: Switch,
    /// `IP_MULTICAST_IF`: the interface that messages to groups leave by, or 0.
    pub group_interface4: Number,
    /// The address that named it, as programs read it.
    pub group_source4: Number,
    /// `IPV6_MULTICAST_IF`: kept and shown, as no message to a group of version 6 has a route.
    pub group_interface6: Number,
    /// `IP_UNICAST_IF` and `IPV6_UNICAST_IF`: kept and shown, as there is one interface.
    pub unicast_interface4: Number,
    /// The latter.
    pub unicast_interface6: Number,
    /// `IPV6_ADDR_PREFERENCES`: kept and shown.
    pub preferences: Number,
    /// `ICMP_FILTER` and `ICMPV6_FILTER`: a bit for each type of packets that a raw socket does not
    /// receive.
    pub blocked: [Number; 8],
}

impl Settings {
    /// How messages tell when they came. `None`: not at all.
    pub fn stamps(&self) -> Option<Stamps> {
        let set = self.stamps.get();
        Stamps::ALL.into_iter().find(|stamps| *stamps as u32 == set)
    }

    /// Whether a raw socket does not receive packets of this type.
    pub(super) fn blocks(&self, kind: Option<u8>) -> bool {
        let kind = kind.unwrap_or(0);
        let word = self.blocked[usize::from(kind / 32)].get();
        word & 1 << (kind % 32) != 0
    }

    /// The flags of `SO_TIMESTAMPING`, if they were set by that form of it.
    pub fn stamping_of(&self, new: bool) -> u32 {
        if self.new_stamping.get() == new {
            self.stamping.get()
        } else {
            0
        }
    }

    /// Takes over what a connection has of its listener: all but `SO_PRIORITY`.
    pub(super) fn inherit(&self, parent: &Self) {
        let timeouts = [
            (&self.receive_timeout, &parent.receive_timeout),
            (&self.send_timeout, &parent.send_timeout),
        ];
        for (ours, theirs) in timeouts {
            ours.set(theirs.get());
        }
        let receive = parent.receive_buffer.load(Ordering::Relaxed);
        self.receive_buffer.store(receive, Ordering::Relaxed);
        let switches = [
            (&self.reuse_address, &parent.reuse_address),
            (&self.reuse_port, &parent.reuse_port),
            (&self.keep_alive, &parent.keep_alive),
            (&self.broadcast, &parent.broadcast),
            (&self.no_route, &parent.no_route),
            (&self.linger, &parent.linger),
            (&self.no_delay, &parent.no_delay),
            (&self.cork, &parent.cork),
            (&self.slow_ack, &parent.slow_ack),
            (&self.whole, &parent.whole),
            (&self.v6_only, &parent.v6_only),
            (&self.reno, &parent.reno),
            (&self.new_stamping, &parent.new_stamping),
        ];
        for (ours, theirs) in switches {
            ours.set(theirs.get());
        }
        let numbers = [
            (&self.receive_least, &parent.receive_least),
            (&self.linger_seconds, &parent.linger_seconds),
            (&self.service, &parent.service),
            (&self.hops, &parent.hops),
            (&self.discovery, &parent.discovery),
            (&self.service6, &parent.service6),
            (&self.hops6, &parent.hops6),
            (&self.discovery6, &parent.discovery6),
            (&self.interface, &parent.interface),
            (&self.stamps, &parent.stamps),
            (&self.stamping, &parent.stamping),
        ];
        for (ours, theirs) in numbers.into_iter().chain(self.tcp.iter().zip(&parent.tcp)) {
            ours.set(theirs.get());
        }
        self.told.set(parent.told.get(), true);
        self.kept.inherit(&parent.kept);
    }
}
