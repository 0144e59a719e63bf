//! Ports: which sockets are bound where, and which socket an address reaches.

use super::address::Protocol;
use super::state::Socket;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::errno::Errno;
use logic::socket::address::{Endpoint, Ip};
use machine::arch::random;
use machine::sync::SpinLock;

/// The ports for sockets that do not choose one (`net.ipv4.ip_local_port_range`).
pub const EPHEMERAL: core::ops::RangeInclusive<u16> = 32768..=60999;

/// The most bindings of one port. All are examined with the ports locked.
const MOST_USERS: usize = 4096;

/// The binding of one socket to an address and port, with the options that decide conflicts.
#[derive(Debug)]
pub(super) struct Binding {
    protocol: Protocol,
    local: Endpoint,
    /// Whether a socket that is bound to the IPv6 wildcard serves IPv6 addresses alone
    /// (`IPV6_V6ONLY`).
    v6_only: bool,
    reuse_address: AtomicBool,
    reuse_port: bool,
    listening: AtomicBool,
    connection: SpinLock<Connection>,
    socket: Weak<Socket>,
}

/// The part of a binding that `connect` sets.
#[derive(Copy, Clone, Debug, Default)]
struct Connection {
    /// The other side: for TCP the peer, for UDP the only address from which messages are received.
    /// `None` if the socket is not connected.
    remote: Option<Endpoint>,
    /// The socket's own address in the connection, if it was bound to the wildcard.
    local: Option<Ip>,
}

/// A socket's use of a port, which ends when the last copy of the binding is dropped. A connection
/// that was accepted shares the binding of its listener.
#[derive(Debug)]
pub(super) struct PortUse(pub(super) Arc<Binding>);

type Key = (Protocol, u16);

/// Nothing but weak references is dropped under this lock.
static PORTS: SpinLock<BTreeMap<Key, Vec<Arc<Binding>>>> = SpinLock::new(BTreeMap::new());

impl Binding {
    /// Creates the binding of `socket` to `local` with the socket's current options for sharing a
    /// port. `v6_only` says whether the binding serves IPv6 addresses alone.
    pub(super) fn new(protocol: Protocol, local: Endpoint, v6_only: bool, socket: &Socket) -> Self {
        let settings = socket.settings();
        Self {
            protocol,
            local,
            v6_only,
            reuse_address: AtomicBool::new(settings.reuse_address.get()),
            reuse_port: settings.reuse_port.get(),
            listening: AtomicBool::new(false),
            connection: SpinLock::new(Connection::default()),
            socket: socket.weak(),
        }
    }

    fn key(&self) -> Key {
        (self.protocol, self.local.port)
    }

    /// Returns the address of the binding, or, if it is connected, that of the connection.
    fn ip(&self) -> Ip {
        self.connection.lock().local.unwrap_or(self.local.ip)
    }

    fn covers(&self, ip: Ip) -> bool {
        self.covers_from(self.ip(), ip)
    }

    /// Returns whether the binding serves `ip` if its own address is `own`.
    fn covers_from(&self, own: Ip, ip: Ip) -> bool {
        own == ip
            || (own == Ip::ANY4 && ip.to_v4().is_some())
            || (own == Ip::ANY6 && !(self.v6_only && ip.to_v4().is_some()))
    }

    fn listens(&self) -> bool {
        // Relaxed: `listen` sets and reads it with `PORTS` locked. Other changes order nothing.
        self.listening.load(Ordering::Relaxed) && self.socket.strong_count() > 0
    }

    fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.covers(other.ip()) || other.covers(self.ip());
        let both =
            |a: &AtomicBool, b: &AtomicBool| a.load(Ordering::Relaxed) && b.load(Ordering::Relaxed);
        let shared = (self.reuse_port && other.reuse_port)
            || (both(&self.reuse_address, &other.reuse_address)
                && (self.protocol != Protocol::Tcp || !(self.listens() || other.listens())));
        overlap && !shared
    }

    /// Applies a change of `SO_REUSEADDR`.
    pub(super) fn set_reuse_address(&self, on: bool) {
        self.reuse_address.store(on, Ordering::Relaxed);
    }

    /// Connects the binding to another side, or disconnects it if `connection` is `None`.
    /// `connection` has the socket's own address and the other side. A connected binding receives
    /// only messages from the other side, and its own address replaces the wildcard.
    pub(super) fn set_connection(&self, connection: Option<(Ip, Endpoint)>) {
        let new = connection.map_or_else(Connection::default, |(local, remote)| Connection {
            remote: Some(remote),
            local: self.local.ip.is_any().then_some(local),
        });
        *self.connection.lock() = new;
    }
}

impl PortUse {
    /// Takes the port of `binding`, or a free one if that port is 0.
    ///
    /// # Errors
    /// Fails with `EADDRINUSE` if the port is taken or no port is free. Fails with `ENOBUFS` if
    /// memory is short, or too many sockets share the port.
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

    /// Returns the address and port that were bound.
    pub(super) fn local(&self) -> Endpoint {
        self.0.local
    }

    /// Marks the socket as a listener.
    ///
    /// # Errors
    /// Fails with `EADDRINUSE` if another socket listens at the same address and port.
    pub(super) fn listen(&self) -> Result<(), Errno> {
        let ports = PORTS.lock();
        let users = ports.get(&self.0.key());
        // Set first: `conflicts` does not let a listener share its port by `SO_REUSEADDR`.
        let was = self.0.listening.swap(true, Ordering::Relaxed);
        let others = users.into_iter().flatten();
        let taken = others
            .filter(|other| !Arc::ptr_eq(other, &self.0))
            .any(|other| other.listens() && self.0.conflicts(other));
        if !taken {
            return Ok(());
        }
        if !was {
            self.0.listening.store(false, Ordering::Relaxed);
        }
        Err(Errno::EADDRINUSE)
    }

    /// Connects TCP from this port at `local`, unless another socket of the port has the same
    /// connection.
    ///
    /// # Errors
    /// Fails with `EADDRNOTAVAIL` if another socket has this connection.
    pub(super) fn connect(&self, local: Ip, remote: Endpoint) -> Result<(), Errno> {
        let ports = PORTS.lock();
        let mut others = ports.get(&self.0.key()).into_iter().flatten();
        let is_same = |other: &Arc<Binding>| {
            !Arc::ptr_eq(other, &self.0)
                && other.connection.lock().remote == Some(remote)
                && other.ip() == local
        };
        if others.any(is_same) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.0.set_connection(Some((local, remote)));
        Ok(())
    }

    /// Sets whether the socket listens. The caller holds the lock of the socket's state, whose
    /// phase must agree.
    pub(super) fn set_listening(&self, on: bool) {
        self.0.listening.store(on, Ordering::Relaxed);
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

/// Returns a free port, searching from a random one. Returns `None` if all are taken.
fn free_port(ports: &BTreeMap<Key, Vec<Arc<Binding>>>, protocol: Protocol) -> Option<u16> {
    let mut bytes = [0; 2];
    random::fill(&mut bytes);
    let (first, last) = (*EPHEMERAL.start(), *EPHEMERAL.end());
    let count = last - first + 1;
    let start = u16::from_le_bytes(bytes) % count;
    (0..count)
        // No overflow: both are below `count`, and twice that fits.
        .map(|n| first + (start + n) % count)
        .find(|port| !ports.contains_key(&(protocol, *port)))
}

/// Returns how exactly a binding matches data that comes `from` one address to `to`. Returns `None`
/// if it does not match.
fn score(binding: &Binding, to: Endpoint, from: Endpoint) -> Option<u32> {
    let Connection { remote, local } = *binding.connection.lock();
    let own = local.unwrap_or(binding.local.ip);
    if !binding.covers_from(own, to.ip) || (binding.protocol == Protocol::Tcp && !binding.listens())
    {
        return None;
    }
    if remote.is_some_and(|remote| remote != from) {
        return None;
    }
    let exact = if own == to.ip { 2 } else { 0 };
    let narrow = u32::from(own != Ip::ANY6);
    Some(exact + narrow + if remote.is_some() { 4 } else { 0 })
}

/// Returns the binding that matches the addresses `to` and `from` most exactly, or `None` if none
/// matches. Of equal ones that all share the port by `SO_REUSEPORT`, the flow selects one. Of
/// others, as on Linux, the last one is taken.
fn choose(users: &[Arc<Binding>], to: Endpoint, from: Endpoint) -> Option<&Arc<Binding>> {
    if let [only] = users {
        return score(only, to, from).map(|_| only);
    }
    let mut best = None;
    let mut equals: u64 = 0;
    let mut all_share = true;
    for binding in users {
        let Some(own) = score(binding, to, from) else {
            continue;
        };
        match best {
            Some((top, _)) if own < top => continue,
            Some((top, _)) if own == top => equals += 1,
            _ => (equals, all_share) = (1, true),
        }
        all_share &= binding.reuse_port;
        best = Some((own, binding));
    }
    let (top, last) = best?;
    if equals < 2 || !all_share {
        return Some(last);
    }
    let nth = usize::try_from(flow(to, from) % equals).unwrap_or(0);
    let mut same = users
        .iter()
        .filter(|binding| score(binding, to, from) == Some(top));
    // Connections change without the lock of the ports, so fewer bindings may match by now.
    Some(same.nth(nth).unwrap_or(last))
}

/// Returns a number that is the same for all data between two addresses.
fn flow(to: Endpoint, from: Endpoint) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let ends = [from, to];
    let bytes = ends
        .iter()
        .flat_map(|end| end.ip.0.into_iter().chain(end.port.to_le_bytes()));
    let mixed = bytes.fold(0_u64, |sum, byte| {
        (sum ^ u64::from(byte))
            .wrapping_mul(MULTIPLIER)
            .rotate_left(23)
    });
    mixed ^ mixed >> 32
}

/// Returns the socket that accepts a TCP connection from the address `from` to the address `to`, or
/// that receives a message between them. Returns `None` if there is none.
pub(super) fn find(protocol: Protocol, to: Endpoint, from: Endpoint) -> Option<Arc<Socket>> {
    let ports = PORTS.lock();
    let users = ports.get(&(protocol, to.port))?;
    let socket = choose(users, to, from)?.socket.clone();
    drop(ports);
    socket.upgrade()
}

/// Returns all sockets that receive a message from `from` to the group or broadcast address `to`.
/// Sockets at other addresses than `to` do not receive it, nor do those that serve version 6 alone.
///
/// # Errors
/// Fails with `ENOBUFS` if memory is short.
pub(super) fn find_all(
    protocol: Protocol,
    to: Endpoint,
    from: Endpoint,
) -> Result<Vec<Arc<Socket>>, Errno> {
    let mut all = Vec::new();
    let count = {
        let ports = PORTS.lock();
        ports.get(&(protocol, to.port)).map_or(0, Vec::len)
    };
    all.try_reserve_exact(count).map_err(|_| Errno::ENOBUFS)?;
    let ports = PORTS.lock();
    let users = ports.get(&(protocol, to.port)).into_iter().flatten();
    let wanted = users.filter(|binding| score(binding, to, from).is_some());
    // A socket that was bound since misses the message.
    all.extend(wanted.take(count).map(|binding| binding.socket.clone()));
    drop(ports);
    let alive = all
        .into_iter()
        .filter_map(|socket: Weak<Socket>| socket.upgrade());
    let mut sockets = Vec::new();
    sockets
        .try_reserve_exact(count)
        .map_err(|_| Errno::ENOBUFS)?;
    sockets.extend(alive);
    Ok(sockets)
}
