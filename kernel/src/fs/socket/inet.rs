//! TCP and UDP over the loopback interface: addresses and connections.

use super::address::{Address, Family, Protocol, SocketKind};
use super::counters::{ACTIVE_OPENS, ATTEMPT_FAILS};
use super::inbox::{Patience, WITH_STAMP};
use super::ports::{self, Binding, PortUse};
use super::state::{Phase, Socket};
use crate::fs::poll::PollMask;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::credentials::{Capabilities, Credentials as Subject};
use logic::errno::Errno;
use logic::socket::address::{AF_INET, AF_UNSPEC, Endpoint, Ip, split_family};
use logic::socket::backlog::Place;
use logic::socket::control::Credentials;
use logic::socket::options;

/// The hop limit of a packet if neither the message nor the socket has one
/// (`net.ipv4.ip_default_ttl`).
pub const DEFAULT_HOPS: u8 = 64;

/// The first port that any task may bind to (`net.ipv4.ip_unprivileged_port_start`). Relaxed: no
/// other memory depends on the value.
pub static UNPRIVILEGED: AtomicU64 = AtomicU64::new(1024);

impl Socket {
    /// Returns the port that the socket is bound to, or `None` if it has no port.
    pub(super) fn port_use(&self) -> Option<Arc<PortUse>> {
        self.state.lock().bound.clone()?.downcast().ok()
    }

    /// Takes the port of `local`, or a free one if that is 0, and stores it in the socket's
    /// address. Fails with `EINVAL` if the socket is bound already, and as [`PortUse::take`].
    fn take_port(&self, local: Endpoint) -> Result<(), Errno> {
        // A socket of ICMP has packets of one IP version only.
        let v6_only = self.settings().v6_only.get() || self.is_icmp();
        // Sockets of `AF_UNIX` do not come here.
        let protocol = self.protocol().unwrap_or(Protocol::Udp);
        let binding = Binding::new(protocol, local, v6_only, self);
        let port = Arc::new(PortUse::take(binding)?);
        let mut state = self.state.lock();
        if state.bound.is_some() {
            drop(state);
            // Another thread was faster.
            drop(port);
            return Err(Errno::EINVAL);
        }
        state.local = Address::Inet(port.local());
        state.bound = Some(port);
        Ok(())
    }

    /// Binds the socket to the IP address and port in `bytes` (`bind(2)`). Port 0 takes a free
    /// port. A raw socket is bound to the address alone.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `bytes` is too short or the socket is bound already. Fails with
    /// `EAFNOSUPPORT` for another address family, with `EADDRNOTAVAIL` if this machine does not
    /// have the address, and with `EACCES` if the port needs a privilege that `who` lacks. Fails
    /// with `EADDRINUSE` if the port is in use.
    pub(super) fn bind_inet(&self, bytes: &[u8], who: &Subject) -> Result<(), Errno> {
        let v6 = self.family() == Family::Inet6;
        let (family, _) = split_family(bytes)?;
        let local = match Endpoint::parse(bytes, v6) {
            // As on Linux, `AF_UNSPEC` counts as version 4 if the address is the wildcard.
            Err(Errno::EAFNOSUPPORT) if !v6 && family == AF_UNSPEC => {
                let mut bytes = bytes.to_vec();
                bytes[..2].copy_from_slice(&self.family().number().to_le_bytes());
                let local = Endpoint::parse(&bytes, v6)?;
                if !local.ip.is_any() {
                    return Err(Errno::EAFNOSUPPORT);
                }
                local
            }
            other => other?,
        };
        if v6 && local.ip.to_v4().is_some() && self.settings().v6_only.get() {
            return Err(Errno::EINVAL);
        }
        let is_group = local.ip.to_v4().is_some() && local.ip.is_group();
        let known = local.ip.is_any() || local.ip.is_local() || is_group;
        if !known && !self.may_be_anywhere(v6) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if self.is_icmp() && self.kind() == SocketKind::Raw {
            self.bind_raw(local);
            return Ok(());
        }
        let unprivileged = UNPRIVILEGED.load(Ordering::Relaxed);
        if (1..unprivileged).contains(&local.port.into())
            && !self.is_icmp()
            && !who.can(Capabilities::NET_BIND_SERVICE)
        {
            return Err(Errno::EACCES);
        }
        if self.state.lock().bound.is_some() {
            return Err(Errno::EINVAL);
        }
        if local.port == 0 && self.settings().kept.is_on(options::NO_PORT) {
            // The socket gets a port when it connects.
            let mut state = self.state.lock();
            state.local = Address::Inet(local);
            state.chose_address = !local.ip.is_any();
            return Ok(());
        }
        self.take_port(local)?;
        let mut state = self.state.lock();
        state.chose_address = !local.ip.is_any();
        state.chose_port = local.port != 0;
        Ok(())
    }

    /// Returns whether an option (`IP_FREEBIND`, `IP_TRANSPARENT`) lets the socket bind to
    /// addresses that this machine does not have. If `v6`, the options of IPv6 count, too.
    fn may_be_anywhere(&self, v6: bool) -> bool {
        let options: &[usize] = if v6 {
            &[
                options::FREE_BIND4,
                options::FREE_BIND6,
                options::TRANSPARENT4,
                options::TRANSPARENT6,
            ]
        } else {
            &[options::FREE_BIND4, options::TRANSPARENT4]
        };
        options.iter().any(|at| self.settings().kept.is_on(*at))
    }

    /// Returns the destination that the address `bytes` names; a wildcard becomes the loopback
    /// address. Messages of a socket of version 6 may go to a plain address of version 4. Fails
    /// with `EINVAL` if `bytes` are too short or too long, with `EAFNOSUPPORT` for another family,
    /// and with `unreachable` for version 4 if the socket serves version 6 alone.
    pub(super) fn destination(&self, bytes: &[u8], unreachable: Errno) -> Result<Endpoint, Errno> {
        let v6 = self.family() == Family::Inet6;
        let messages = !self.is_tcp();
        let (family, _) = split_family(bytes)?;
        let mut to = match family {
            AF_INET if v6 && messages => {
                if self.settings().v6_only.get() {
                    return Err(unreachable);
                }
                Endpoint::parse(bytes, false)?
            }
            // As on Linux, `AF_UNSPEC` counts as version 4.
            AF_UNSPEC if !v6 && messages => {
                let mut bytes = bytes.to_vec();
                bytes[..2].copy_from_slice(&AF_INET.to_le_bytes());
                Endpoint::parse(&bytes, false)?
            }
            _ => Endpoint::parse(bytes, v6)?,
        };
        if to.ip == Ip::ANY6 {
            to.ip = Ip::LOCAL6;
        } else if to.ip == Ip::ANY4 {
            to.ip = Ip::LOCAL4;
        }
        Ok(to)
    }

    /// Returns the source address of packets to `to`. `interface` is the one that a message chose,
    /// or 0.
    ///
    /// # Errors
    /// Fails with `ENETUNREACH` if `to` cannot be reached, and with `EACCES` for the broadcast
    /// address without `SO_BROADCAST`. Fails with `EINVAL` or `ENETUNREACH` if the socket is bound
    /// to an address of the other IP version.
    pub(super) fn route(&self, to: Endpoint, interface: u32) -> Result<Ip, Errno> {
        let v6 = self.family() == Family::Inet6;
        let settings = self.settings();
        let is_v4 = to.ip.to_v4().is_some();
        let is_many = to.ip.is_group() || to.ip.is_broadcast();
        let reaches_groups = !self.is_tcp()
            && is_v4
            && (interface != 0
                || settings.group_interface4.get() != 0
                || settings.interface.get() != 0);
        let reachable = match (to.ip.is_group(), to.ip.is_broadcast()) {
            (true, _) => reaches_groups,
            (_, true) => !self.is_tcp(),
            _ => to.ip.is_local(),
        };
        if !reachable || (v6 && is_v4 && settings.v6_only.get()) {
            return Err(Errno::ENETUNREACH);
        }
        if to.ip.is_broadcast() && !settings.broadcast.get() {
            return Err(Errno::EACCES);
        }
        let bound = self.endpoint().ip;
        let from = if bound.is_any() || bound.is_group() || bound.is_broadcast() {
            if is_v4 { Ip::LOCAL4 } else { Ip::LOCAL6 }
        } else {
            bound
        };
        debug_assert!(is_v4 || !is_many, "groups of version 6 have no route");
        if from.to_v4().is_some() != is_v4 {
            // The socket is bound to an address of the other version.
            return Err(if v6 {
                Errno::ENETUNREACH
            } else {
                Errno::EINVAL
            });
        }
        Ok(from)
    }

    /// Binds the socket to a free port at the address `from`. Does nothing if the socket has a
    /// port.
    ///
    /// # Errors
    /// Fails with `EADDRNOTAVAIL` if no port is free, and with the other errors of taking a port.
    pub(super) fn bind_to_any_port(&self, from: Ip) -> Result<(), Errno> {
        if self.state.lock().bound.is_some() {
            return Ok(());
        }
        let local = Endpoint { ip: from, port: 0 };
        match self.take_port(local) {
            Err(Errno::EINVAL) => Ok(()),
            Err(Errno::EADDRINUSE) => Err(Errno::EADDRNOTAVAIL),
            other => other,
        }
    }

    /// Makes the socket listen for TCP connections (`listen(2)`). At most `backlog` connections
    /// wait to be accepted. A socket without a port gets a free one.
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if this is no TCP socket, and with `EINVAL` if it is connected or
    /// connecting. Fails with `EADDRINUSE` if another socket listens at the port.
    pub(super) fn listen_inet(&self, backlog: usize) -> Result<(), Errno> {
        if !self.is_tcp() {
            return Err(Errno::EOPNOTSUPP);
        }
        let phase = self.state.lock().phase;
        if !matches!(phase, Phase::Idle | Phase::Listening | Phase::Refused) {
            return Err(Errno::EINVAL);
        }
        // With `IP_BIND_ADDRESS_NO_PORT` the socket has an address without a port, and keeps it.
        self.bind_to_any_port(self.endpoint().ip)?;
        let port = self.port_use();
        if let Some(port) = &port {
            port.listen()?;
        }
        self.start_listening(backlog);
        if let Some(port) = &port {
            // Another thread may have ended the listener meanwhile, before or after it began.
            let state = self.state.lock();
            port.set_listening(state.phase == Phase::Listening);
        }
        Ok(())
    }

    /// Applies a change of `SO_REUSEADDR` to the port.
    pub(super) fn reuse_address_changed(&self, on: bool) {
        if let Some(port) = self.port_use() {
            port.0.set_reuse_address(on);
        }
    }

    /// Connects the socket to the IP address and port in `bytes` (`connect(2)`). A TCP socket waits
    /// for the connection as `patience` allows. Another socket only notes its default destination.
    /// With the family `AF_UNSPEC` the socket is disconnected instead.
    ///
    /// # Errors
    /// Fails with `EISCONN` if a TCP socket is connected or listens, with `EINPROGRESS` if it does
    /// not wait, and with `EALREADY` if it is connecting already. Fails with `ECONNREFUSED` if no
    /// socket listens at the address, and with the error of an earlier attempt that was not
    /// reported yet. Otherwise fails as `connect(2)`.
    pub(super) fn connect_inet(&self, bytes: &[u8], patience: Patience) -> Result<(), Errno> {
        let (family, _) = split_family(bytes)?;
        if !self.is_tcp() {
            return self.aim_at(bytes, family);
        }
        if family == AF_UNSPEC {
            if let Some(port) = self.port_use() {
                port.0.set_connection(None);
            }
            self.disconnect_stream();
            return Ok(());
        }
        let phase = self.state.lock().phase;
        match phase {
            Phase::Connected { reported: true } | Phase::Listening => return Err(Errno::EISCONN),
            Phase::Connected { reported: false } => {
                self.set_reported();
                return Ok(());
            }
            Phase::Connecting if patience == Patience::None => return Err(Errno::EALREADY),
            Phase::Connecting => return self.wait_for_turn(patience),
            Phase::Refused => {
                self.state.lock().phase = Phase::Idle;
                return Err(self.take_error().unwrap_or(Errno::ECONNABORTED));
            }
            Phase::Idle => {}
        }
        let to = self.destination(bytes, Errno::ENETUNREACH)?;
        let from = self.route(to, 0)?;
        let was_bound = self.state.lock().bound.is_some();
        self.bind_to_any_port(from)?;
        let local = Endpoint {
            ip: from,
            port: self.endpoint().port,
        };
        let port = self.port_use().ok_or(Errno::EADDRNOTAVAIL)?;
        let before = self.local();
        self.state.lock().local = Address::Inet(local);
        let connects = port.connect(from, to);
        let result = connects.and_then(|()| self.connect_from(local, to, patience));
        if !matches!(result, Ok(()) | Err(Errno::EINPROGRESS)) {
            if result != Err(Errno::EADDRNOTAVAIL) {
                port.0.set_connection(None);
            }
            let mut state = self.state.lock();
            let bound = if was_bound { None } else { state.bound.take() };
            state.local = if was_bound || state.chose_address {
                before
            } else {
                Address::unbound(self.family())
            };
            if !was_bound && let Some(Endpoint { ip, .. }) = state.local.endpoint() {
                state.local = Address::Inet(Endpoint { ip, port: 0 });
            }
            drop(state);
            drop(bound);
        }
        drop(port);
        result
    }

    /// Connects a socket to itself. It was bound to the address that it connects to, and no socket
    /// listens there.
    fn connect_to_itself(&self, to: Endpoint) {
        let peer = self.inbox.clone();
        self.set_connected(peer, Address::Inet(to), Credentials::NO_PROCESS, true);
        self.notifier.notify(PollMask::WRITABLE);
    }

    fn connect_from(&self, local: Endpoint, to: Endpoint, patience: Patience) -> Result<(), Errno> {
        let listener = ports::find(Protocol::Tcp, to, local).and_then(|server| {
            Some((
                server.state.lock().listener.clone()?,
                server.family(),
                server.clone(),
            ))
        });
        let placed = match listener {
            None if local == to => {
                self.connect_to_itself(to);
                return Ok(());
            }
            None => {
                ATTEMPT_FAILS.count();
                Err(Errno::ECONNREFUSED)
            }
            Some((listener, family, parent)) => {
                let server = Self::new(family, self.kind());
                server.inherit(&parent);
                let port = parent.state.lock().bound.clone();
                drop(parent);
                {
                    let mut state = server.state.lock();
                    state.local = Address::Inet(to);
                    state.bound = port;
                }
                ACTIVE_OPENS.count();
                self.connect_to(&listener, server, Address::Inet(to), Patience::None)
            }
        };
        match placed {
            Err(Errno::ECONNREFUSED) if patience == Patience::None => {
                // As on Linux, a nonblocking call does not return the refusal itself.
                self.state.lock().phase = Phase::Refused;
                self.inbox.set_error(Errno::ECONNREFUSED);
                Err(Errno::EINPROGRESS)
            }
            Err(error) => Err(error),
            Ok(_) if patience == Patience::None => Err(Errno::EINPROGRESS),
            Ok(Place::Waiting) => self.wait_for_turn(patience),
            Ok(Place::Established) => {
                self.set_reported();
                Ok(())
            }
        }
    }

    /// Copies the options that a connection inherits from its listener `parent`.
    fn inherit(&self, parent: &Self) {
        self.settings().inherit(parent.settings());
        self.set_urgent_inline(parent.is_urgent_inline());
        self.inbox.ask(WITH_STAMP, parent.inbox.asks(WITH_STAMP));
        if parent.state.lock().send_buffer_set {
            self.set_send_buffer(parent.send_buffer());
        }
    }

    /// Waits until a connection attempt has succeeded or failed. Fails with `EINPROGRESS` if
    /// `patience` allows no further wait, with `ECONNREFUSED` or another error if the attempt has
    /// failed, and with the error of a signal.
    fn wait_for_turn(&self, patience: Patience) -> Result<(), Errno> {
        let waited = patience.wait(&self.notifier, || {
            self.state.lock().phase != Phase::Connecting || self.inbox.look().error
        });
        match waited {
            Err(Errno::EAGAIN) => return Err(Errno::EINPROGRESS),
            other => other?,
        }
        let error = self.take_error();
        let mut state = self.state.lock();
        // The listener closed with all its waiting connections. Another thread may have taken the
        // error.
        if error.is_some() || state.phase == Phase::Refused {
            state.phase = Phase::Idle;
            return Err(match error {
                None | Some(Errno::ECONNRESET) => Errno::ECONNREFUSED,
                Some(other) => other,
            });
        }
        drop(state);
        self.set_reported();
        Ok(())
    }

    /// `connect` of UDP or ICMP: sets the only address that the socket sends to and receives from.
    /// An address of `AF_UNSPEC` removes it. Fails with `EINVAL` or `EAFNOSUPPORT` for an address
    /// that the socket cannot use, and as [`Self::route`] and [`Self::bind_to_any_port`] do.
    fn aim_at(&self, bytes: &[u8], family: u16) -> Result<(), Errno> {
        if family == AF_UNSPEC {
            self.clear_aim();
            return Ok(());
        }
        let to = self.destination(bytes, Errno::EAFNOSUPPORT)?;
        let from = self.route(to, 0)?;
        if self.kind() != SocketKind::Raw {
            self.bind_to_any_port(from)?;
        }
        let port = self.endpoint().port;
        let mut state = self.state.lock();
        // A socket that is bound to a group or to the broadcast address still receives there.
        let bound = state.local.endpoint();
        let many = bound.is_some_and(|bound| bound.ip.is_group() || bound.ip.is_broadcast());
        if !many {
            state.local = Address::Inet(Endpoint { ip: from, port });
        }
        state.remote = Some(Address::Inet(to));
        state.phase = Phase::Connected { reported: true };
        drop(state);
        if let Some(port) = self.port_use() {
            port.0.set_connection(Some((from, to)));
        }
        Ok(())
    }

    /// Has the socket receive from all addresses again. It keeps the address and port that the
    /// program chose.
    fn clear_aim(&self) {
        if let Some(port) = self.port_use() {
            port.0.set_connection(None);
        }
        let mut state = self.state.lock();
        state.remote = None;
        state.phase = Phase::Idle;
        let bound = if state.chose_port {
            None
        } else {
            state.bound.take()
        };
        let any = Address::unbound(self.family()).endpoint();
        if let (Some(local), Some(any)) = (state.local.endpoint(), any) {
            state.local = Address::Inet(Endpoint {
                ip: if state.chose_address {
                    local.ip
                } else {
                    any.ip
                },
                port: if state.chose_port { local.port } else { 0 },
            });
        }
        drop(state);
        drop(bound);
    }
}
