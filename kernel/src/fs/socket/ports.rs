//! Ports: which sockets of TCP and UDP are bound where, and who is meant by an address.

use super::address::Protocol;
use super::state::Socket;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use logic::errno::Errno;
use logic::socket::address::{Endpoint, Ip};
use machine::arch::random;
use machine::sync::SpinLock;

/// The ports that who asks for none gets (`net.ipv4.ip_local_port_range`).
pub const EPHEMERAL: core::ops::RangeInclusive<u16> = 32768..=60999;

/// The most uses of one port: all are looked at with the ports locked.
const MOST_USERS: usize = 4096;

/// One socket's use of a port.
#[derive(Debug)]
pub(super) struct Binding {
    protocol: Protocol,
    local: Endpoint,
    /// Of version 6 and for it alone.
    v6_only: bool,
    reuse_address: AtomicBool,
    reuse_port: bool,
    listening: AtomicBool,
    /// The only one that UDP receives from.
    remote: SpinLock<Option<Endpoint>>,
    socket: Weak<Socket>,
}

/// Keeps a port. A connection that was accepted has its listener's.
#[derive(Debug)]
pub(super) struct PortUse(pub(super) Arc<Binding>);

type Key = (Protocol, u16);

/// Nothing is dropped under it but weak references.
static PORTS: SpinLock<BTreeMap<Key, Vec<Arc<Binding>>>> = SpinLock::new(BTreeMap::new());

impl Binding {
    /// For a socket that is to be bound to `local` with its options as they are.
    pub(super) fn new(protocol: Protocol, local: Endpoint, v6_only: bool, socket: &Socket) -> Self {
        let settings = socket.settings();
        Self {
            protocol,
            local,
            v6_only,
            reuse_address: AtomicBool::new(settings.reuse_address.get()),
            reuse_port: settings.reuse_port.get(),
            listening: AtomicBool::new(false),
            remote: SpinLock::new(None),
            socket: socket.weak(),
        }
    }

    fn key(&self) -> Key {
        (self.protocol, self.local.port)
    }

    fn covers(&self, ip: Ip) -> bool {
        self.local.ip == ip
            || (self.local.ip == Ip::ANY4 && ip.to_v4().is_some())
            || (self.local.ip == Ip::ANY6 && !(self.v6_only && ip.to_v4().is_some()))
    }

    fn listens(&self) -> bool {
        // Relaxed: changed under the lock of all ports, as it is read.
        self.listening.load(Ordering::Relaxed) && self.socket.strong_count() > 0
    }

    fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.covers(other.local.ip) || other.covers(self.local.ip);
        let both =
            |a: &AtomicBool, b: &AtomicBool| a.load(Ordering::Relaxed) && b.load(Ordering::Relaxed);
        let shared = (self.reuse_port && other.reuse_port)
            || (both(&self.reuse_address, &other.reuse_address)
                && (self.protocol != Protocol::Tcp || !(self.listens() || other.listens())));
        overlap && !shared
    }

    /// `SO_REUSEADDR` was changed.
    pub(super) fn set_reuse_address(&self, on: bool) {
        self.reuse_address.store(on, Ordering::Relaxed);
    }

    /// Messages from others than `remote` are for others.
    pub(super) fn receive_only_from(&self, remote: Option<Endpoint>) {
        *self.remote.lock() = remote;
    }
}

impl PortUse {
    /// Takes the port, or, where that is 0, one that nobody has.
    ///
    /// # Errors
    /// `EADDRINUSE`; `ENOBUFS`: no memory, or too many share it.
    pub(super) fn take(mut binding: Binding) -> Result<Self, Errno> {
        let mut ports = PORTS.lock();
        if binding.local.port == 0 {
            let port = free_port(&ports, binding.protocol);
            let Some(port) = port else {
                drop(ports);
                return Err(Errno::EADDRINUSE);
            };
            binding.local.port = port;
        }
        let users = ports.entry(binding.key()).or_default();
        let taken = users.iter().any(|other| binding.conflicts(other));
        if taken || users.len() >= MOST_USERS || users.try_reserve(1).is_err() {
            let error = if taken {
                Errno::EADDRINUSE
            } else {
                Errno::ENOBUFS
            };
            if users.is_empty() {
                ports.remove(&binding.key());
            }
            drop(ports);
            return Err(error);
        }
        let binding = Arc::new(binding);
        users.push(binding.clone());
        Ok(Self(binding))
    }

    /// Where it is.
    pub(super) fn local(&self) -> Endpoint {
        self.0.local
    }

    /// Its socket listens from now on.
    ///
    /// # Errors
    /// `EADDRINUSE`: another one does there.
    pub(super) fn listen(&self) -> Result<(), Errno> {
        let ports = PORTS.lock();
        let users = ports.get(&self.0.key());
        // As a listener it shares the port with no listener and no other.
        let was = self.0.listening.swap(true, Ordering::Relaxed);
        let others = users.into_iter().flatten();
        let taken = others
            .filter(|other| !Arc::ptr_eq(other, &self.0))
            .any(|other| other.listens() && self.0.conflicts(other));
        if taken {
            self.0.listening.store(was, Ordering::Relaxed);
            return Err(Errno::EADDRINUSE);
        }
        Ok(())
    }

    /// It does not listen any more.
    pub(super) fn stop_listening(&self) {
        self.0.listening.store(false, Ordering::Relaxed);
    }
}

impl Drop for PortUse {
    fn drop(&mut self) {
        let mut ports = PORTS.lock();
        if let Some(users) = ports.get_mut(&self.0.key()) {
            users.retain(|other| !Arc::ptr_eq(other, &self.0));
            if users.is_empty() {
                ports.remove(&self.0.key());
            }
        }
    }
}

/// A port that nobody has, from a random one on.
fn free_port(ports: &BTreeMap<Key, Vec<Arc<Binding>>>, protocol: Protocol) -> Option<u16> {
    let mut bytes = [0; 2];
    random::fill(&mut bytes);
    let (first, last) = (*EPHEMERAL.start(), *EPHEMERAL.end());
    let count = last - first + 1;
    let start = u16::from_le_bytes(bytes) % count;
    (0..count)
        // Both are below the count, and twice that fits.
        .map(|n| first + (start + n) % count)
        .find(|port| !ports.contains_key(&(protocol, *port)))
}

/// The socket that accepts connections to `to`, or that receives a message of UDP that comes `from`
/// there: of those that would, who says most exactly what it wants; among equals by turns.
pub(super) fn find(protocol: Protocol, to: Endpoint, from: Endpoint) -> Option<Arc<Socket>> {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let ports = PORTS.lock();
    let users = ports.get(&(protocol, to.port))?;
    let score = |binding: &Binding| -> Option<u32> {
        if !binding.covers(to.ip) || (protocol == Protocol::Tcp && !binding.listens()) {
            return None;
        }
        let remote = *binding.remote.lock();
        if remote.is_some_and(|remote| remote != from) {
            return None;
        }
        let exact = if binding.local.ip == to.ip { 2 } else { 0 };
        let narrow = u32::from(binding.local.ip != Ip::ANY6);
        Some(exact + narrow + if remote.is_some() { 4 } else { 0 })
    };
    let best = users.iter().filter_map(|b| score(b)).max()?;
    let equal = || users.iter().filter(|b| score(b) == Some(best));
    let turn = TURN.fetch_add(1, Ordering::Relaxed) as usize;
    // Peers change without the lock of the ports: there may be fewer than there were a moment ago.
    let chosen = if equal().all(|binding| binding.reuse_port) {
        let nth = turn.checked_rem(equal().count());
        nth.and_then(|nth| equal().nth(nth))
    } else {
        // As on Linux who came last.
        equal().next_back()
    };
    let socket = chosen?.socket.clone();
    drop(ports);
    socket.upgrade()
}
