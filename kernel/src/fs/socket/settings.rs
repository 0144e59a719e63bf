//! The options of a socket that programs set (`setsockopt`).

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use logic::socket::options::{Kept, NUMBERS, SWITCHES};
use logic::socket::packet::Told;
use machine::arch::clock::{self, Nanos};

/// `SO_RCVTIMEO` or `SO_SNDTIMEO`: how long a call waits. 0 is for ever.
#[derive(Debug, Default)]
pub struct Timeout(AtomicU64);

impl Timeout {
    /// Returns the time in nanoseconds, or 0 if calls wait without a limit.
    pub fn get(&self) -> u64 {
        // Relaxed (all of this file): an option orders nothing.
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the time in nanoseconds. With 0 calls wait without a limit.
    pub fn set(&self, nanos: u64) {
        self.0.store(nanos, Ordering::Relaxed);
    }

    /// Returns the time at which a call that begins now gives up, or `None` if it waits without a
    /// limit.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        match self.get() {
            0 => None,
            nanos => Some(clock::now().saturating_add(Nanos(nanos))),
        }
    }
}

/// An option that is on or off.
#[derive(Debug, Default)]
pub struct Switch(AtomicBool);

impl Switch {
    /// Returns whether the option is on.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Turns the option on or off.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }
}

/// An option with a number.
#[derive(Debug, Default)]
pub struct Number(AtomicU32);

impl Number {
    /// Returns the value of the option.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the option to `value`.
    pub fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The set of control messages that the socket's receiver has requested, such as `IP_PKTINFO`.
#[derive(Debug, Default)]
pub struct ToldSet(AtomicU32);

impl ToldSet {
    /// Returns the whole set.
    pub fn get(&self) -> Told {
        Told::from_bits_truncate(self.0.load(Ordering::Relaxed))
    }

    /// Adds the messages `told` to the set if `on`, else removes them.
    pub fn set(&self, told: Told, on: bool) {
        if on {
            self.0.fetch_or(told.bits(), Ordering::Relaxed);
        } else {
            self.0.fetch_and(!told.bits(), Ordering::Relaxed);
        }
    }
}

/// The options of [`SWITCHES`] and [`NUMBERS`], kept for programs to read again. Each is stored as
/// the difference from its initial value, so that a new socket has zeros.
#[derive(Debug, Default)]
pub struct KeptValues {
    switches: AtomicU64,
    numbers: [AtomicI32; NUMBERS.len()],
}

impl KeptValues {
    /// Returns the value of the option `kept`, 0 or 1 for a switch.
    pub fn get(&self, kept: Kept) -> i32 {
        match kept {
            Kept::Switch(at) => self.is_on(at).into(),
            Kept::Number(at) => {
                let changed = self.numbers[at].load(Ordering::Relaxed);
                NUMBERS[at].initial.wrapping_add(changed)
            }
        }
    }

    /// Returns whether the switch with the index `at` in [`SWITCHES`] is on.
    pub fn is_on(&self, at: usize) -> bool {
        let changed = self.switches.load(Ordering::Relaxed) & (1 << at) != 0;
        SWITCHES[at].initial != changed
    }

    /// Sets the option `kept` to `value`.
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

/// The form in which a receiver gets the time of a message.
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
    /// All forms.
    const ALL: [Self; 4] = [Self::Micros, Self::Nanos, Self::NewMicros, Self::NewNanos];
}

/// The times of TCP keep-alive probes for sockets whose program has not set them
/// (`net.ipv4.tcp_keepalive_*`). They are only stored and shown: no probe is sent. Relaxed: no
/// other memory depends on them.
#[derive(Debug)]
pub struct KeepAlive {
    /// The number of seconds a connection is idle before the first probe.
    pub idle: AtomicU64,
    /// The number of seconds between two probes.
    pub interval: AtomicU64,
    /// The number of unanswered probes after which the connection is lost.
    pub probes: AtomicU64,
}

/// The values for all connections.
pub static KEEP_ALIVE: KeepAlive = KeepAlive {
    idle: AtomicU64::new(7200),
    interval: AtomicU64::new(75),
    probes: AtomicU64::new(9),
};

/// All options of a socket. An option that is "kept and shown" is stored for programs to read
/// again, and has no other effect.
#[derive(Debug, Default)]
pub struct Settings {
    /// `SO_RCVTIMEO`: the longest wait of a receiving call.
    pub receive_timeout: Timeout,
    /// `SO_SNDTIMEO`: the longest wait of a sending call.
    pub send_timeout: Timeout,
    /// `SO_RCVBUF`: if the messages that wait take more bytes of memory than this, an IP or netlink
    /// socket drops further ones. TCP and `AF_UNIX` do not use it.
    pub receive_buffer: AtomicUsize,
    /// `SO_PASSCRED`: messages come with the sender's credentials.
    pub pass_credentials: Switch,
    /// `SO_REUSEADDR`: the port may be shared with sockets that have the option too.
    pub reuse_address: Switch,
    /// `SO_REUSEPORT`: the port may be shared with sockets that have the option too, listeners
    /// included.
    pub reuse_port: Switch,
    /// `SO_KEEPALIVE`. Only stored and returned to programs: a peer on the same machine needs no
    /// probes.
    pub keep_alive: Switch,
    /// `SO_BROADCAST`: messages may be sent to broadcast addresses.
    pub broadcast: Switch,
    /// `SO_DONTROUTE`. Only stored and returned to programs.
    pub no_route: Switch,
    /// `SO_BINDTODEVICE`: the number of the interface by which messages to groups leave, or 0 if
    /// none is set.
    pub interface: Number,
    /// Whether `TCP_CONGESTION` is `reno`. Only stored and returned to programs.
    pub reno: Switch,
    /// `SO_PRIORITY`. Only stored and returned to programs.
    pub priority: Number,
    /// `SO_RCVLOWAT`: the least number of bytes for which a receiving call on a stream waits. 0
    /// counts as 1.
    pub receive_least: Number,
    /// `SO_LINGER` is on. A close never waits, because sent data is in the peer's inbox already. If
    /// `linger_seconds` is 0, a close resets the connection.
    pub linger: Switch,
    /// The seconds of `SO_LINGER`.
    pub linger_seconds: Number,
    /// `TCP_NODELAY`. Only stored and returned to programs: nothing is delayed.
    pub no_delay: Switch,
    /// `TCP_CORK` or `UDP_CORK`: sent data is held back.
    pub cork: Switch,
    /// Whether `TCP_QUICKACK` was switched off. Only stored and returned to programs.
    pub slow_ack: Switch,
    /// The options `TCP_KEEPIDLE` and others, in the order of the table in
    /// `syscall/socket_options/tcp.rs`. Only stored and returned to programs. 0 stands for Linux's
    /// default.
    pub tcp: [Number; 6],
    /// `IP_TOS`: UDP passes it to receivers.
    pub service: Number,
    /// `IP_TTL`: UDP passes it to receivers. 0: Linux's default.
    pub hops: Number,
    /// `IP_MTU_DISCOVER` plus 1, or 0 for Linux's default. Only stored and returned to programs,
    /// since no packet is too large for the loopback interface.
    pub discovery: Number,
    /// `IPV6_TCLASS`: UDP passes it to receivers.
    pub service6: Number,
    /// `IPV6_UNICAST_HOPS` plus 1, or 0 for Linux's default. UDP passes it to receivers.
    pub hops6: Number,
    /// `IPV6_MTU_DISCOVER` plus 1, or 0 for Linux's default. Only stored and returned to programs.
    pub discovery6: Number,
    /// `IPV6_DONTFRAG`. Only stored and returned to programs.
    pub whole: Switch,
    /// The control messages that come with received data.
    pub told: ToldSet,
    /// `UDPLITE_SEND_CSCOV`: the number of bytes of a message, header included, that the checksum
    /// covers. 0 stands for the whole message.
    pub coverage: Number,
    /// `UDPLITE_RECV_CSCOV` plus 1: a message whose checksum covers fewer bytes is dropped. 0 drops
    /// none.
    pub least_coverage: Number,
    /// `IPV6_V6ONLY`: the socket serves no addresses of IPv4.
    pub v6_only: Switch,
    /// The options without a field here.
    pub kept: KeptValues,
    /// `SO_DEBUG`. Only stored and returned to programs.
    pub debug: Switch,
    /// `SO_LOCK_FILTER`. Only stored and returned to programs, since no filter can be attached.
    pub lock_filter: Switch,
    /// The value of `SO_MAX_PACING_RATE` with all bits inverted, so that the default is 0. The
    /// value is shown to programs and has no effect.
    pub unpaced: AtomicU64,
    /// The form in which received messages carry their time, a number of [`Stamps`], or 0 for none.
    pub(super) stamps: Number,
    /// The flags of `SO_TIMESTAMPING_OLD` or `SO_TIMESTAMPING_NEW`, whichever was set last.
    pub(super) stamping: Number,
    /// Whether `SO_TIMESTAMPING_NEW` set the flags in `stamping`.
    pub(super) new_stamping: Switch,
    /// `IP_MULTICAST_IF`: the interface that messages to groups leave by, or 0.
    pub group_interface4: Number,
    /// `IP_MULTICAST_IF`: the address by which the program has chosen the interface.
    pub group_source4: Number,
    /// `IPV6_MULTICAST_IF`. Only stored and returned to programs, since no message to a group of
    /// version 6 has a route.
    pub group_interface6: Number,
    /// `IP_UNICAST_IF`. Only stored and returned to programs, since there is one interface.
    pub unicast_interface4: Number,
    /// `IPV6_UNICAST_IF`. Only stored and returned to programs, since there is one interface.
    pub unicast_interface6: Number,
    /// `IPV6_ADDR_PREFERENCES`. Only stored and returned to programs.
    pub preferences: Number,
    /// `ICMP_FILTER` and `ICMPV6_FILTER`: a bit for each type of packets that a raw socket does not
    /// receive.
    pub blocked: [Number; 8],
}

impl Settings {
    /// Returns the form in which messages carry their time, or `None` if they carry no time.
    pub fn stamps(&self) -> Option<Stamps> {
        let set = self.stamps.get();
        Stamps::ALL.into_iter().find(|stamps| *stamps as u32 == set)
    }

    /// Returns whether a raw socket refuses packets of the ICMP type `kind`. `None` counts as 0.
    pub(super) fn blocks(&self, kind: Option<u8>) -> bool {
        let kind = kind.unwrap_or(0);
        let word = self.blocked[usize::from(kind / 32)].get();
        word & 1 << (kind % 32) != 0
    }

    /// Returns the flags of `SO_TIMESTAMPING_NEW` if `new`, else of `SO_TIMESTAMPING_OLD`. Returns
    /// 0 if the other option was set last.
    pub fn stamping_of(&self, new: bool) -> u32 {
        if self.new_stamping.get() == new {
            self.stamping.get()
        } else {
            0
        }
    }

    /// Copies the options that a connection inherits from its listener. `SO_PRIORITY` is not among
    /// them.
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
