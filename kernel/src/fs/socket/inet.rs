//! TCP and UDP over the loopback interface: addresses, connections and messages.

use super::account::{self, NoRoom};
use super::address::{Address, Family, Protocol};
use super::inbox::{Patience, Refusal};
use super::operations::Outgoing;
use super::payload::Payload;
use super::ports::{self, Binding, PortUse};
use super::queue::Bounds;
use super::segment::Segment;
use super::state::{Phase, Socket};
use super::stream::OVERHEAD;
use crate::fs::io::ByteSource;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::credentials::{Capabilities, Credentials as Subject};
use logic::errno::{Errno, SysResult};
use logic::socket::address::{AF_UNSPEC, Endpoint, Ip, split_family};
use logic::socket::backlog::Place;
use logic::socket::control::Credentials;
use logic::socket::packet::{Choice, Head, Told, Version};

/// The longest message of UDP: what a packet has without its heads.
const LONGEST_MESSAGE: usize = 65_507;

/// The hops of a packet where nobody says how many (`net.ipv4.ip_default_ttl`).
pub const DEFAULT_HOPS: u8 = 64;

/// Bytes in front of a message of UDP.
const UDP_HEADER: usize = 8;

/// The first port that anybody may bind to (`net.ipv4.ip_unprivileged_port_start`). Relaxed: a value of its own.
pub static UNPRIVILEGED: AtomicU64 = AtomicU64::new(1024);

impl Socket {
    fn port_use(&self) -> Option<Arc<PortUse>> {
        self.state.lock().bound.clone()?.downcast().ok()
    }

    /// Takes a port; `local` is what it is called then.
    fn take_port(&self, local: Endpoint) -> Result<(), Errno> {
        let v6_only = self.settings().v6_only.get();
        // A socket of AF_UNIX does not come here.
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

    /// `bind`.
    pub(super) fn bind_inet(&self, bytes: &[u8], who: &Subject) -> Result<(), Errno> {
        let v6 = self.family() == Family::Inet6;
        let (family, _) = split_family(bytes)?;
        let local = match Endpoint::parse(bytes, v6) {
            // As on Linux no family is that of version 4 where the address is none either.
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
        if !local.ip.is_any() && !local.ip.is_local() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let unprivileged = UNPRIVILEGED.load(Ordering::Relaxed);
        if (1..unprivileged).contains(&local.port.into())
            && !who.can(Capabilities::NET_BIND_SERVICE)
        {
            return Err(Errno::EACCES);
        }
        if self.state.lock().bound.is_some() {
            return Err(Errno::EINVAL);
        }
        self.take_port(local)
    }

    /// Where a program's address leads, and the address that it is reached from.
    fn route(&self, bytes: &[u8]) -> Result<(Endpoint, Ip), Errno> {
        let v6 = self.family() == Family::Inet6;
        let mut to = Endpoint::parse(bytes, v6)?;
        if to.ip == Ip::ANY6 {
            to.ip = Ip::LOCAL6;
        } else if to.ip == Ip::ANY4 {
            to.ip = Ip::LOCAL4;
        }
        let is_v4 = to.ip.to_v4().is_some();
        if !to.ip.is_local() || (v6 && is_v4 && self.settings().v6_only.get()) {
            return Err(Errno::ENETUNREACH);
        }
        let bound = self.endpoint().ip;
        let from = if bound.is_any() {
            if is_v4 { Ip::LOCAL4 } else { Ip::LOCAL6 }
        } else {
            bound
        };
        if from.to_v4().is_some() != is_v4 {
            // Bound to an address of the other version.
            return Err(if v6 {
                Errno::ENETUNREACH
            } else {
                Errno::EINVAL
            });
        }
        Ok((to, from))
    }

    /// Gives it a port if it has none.
    fn bind_to_any_port(&self, from: Ip) -> Result<(), Errno> {
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

    /// `listen`.
    pub(super) fn listen_inet(&self, backlog: usize) -> Result<(), Errno> {
        if !self.is_tcp() {
            return Err(Errno::EOPNOTSUPP);
        }
        let phase = self.state.lock().phase;
        if !matches!(phase, Phase::Idle | Phase::Listening | Phase::Refused) {
            return Err(Errno::EINVAL);
        }
        let any = if self.family() == Family::Inet6 {
            Ip::ANY6
        } else {
            Ip::ANY4
        };
        self.bind_to_any_port(any)?;
        if let Some(port) = self.port_use() {
            port.listen()?;
        }
        self.start_listening(backlog);
        Ok(())
    }

    /// It stopped to listen.
    pub(super) fn stop_at_port(&self) {
        if let Some(port) = self.port_use() {
            port.stop_listening();
        }
    }

    /// `SO_REUSEADDR` was changed.
    pub(super) fn reuse_address_changed(&self, on: bool) {
        if let Some(port) = self.port_use() {
            port.0.set_reuse_address(on);
        }
    }

    /// `connect`.
    pub(super) fn connect_inet(&self, bytes: &[u8], patience: Patience) -> Result<(), Errno> {
        let (family, _) = split_family(bytes)?;
        if !self.is_tcp() {
            return self.aim_at(bytes, family);
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
        if family == AF_UNSPEC {
            return Ok(());
        }
        let (to, from) = self.route(bytes)?;
        let was_bound = self.state.lock().bound.is_some();
        self.bind_to_any_port(from)?;
        let local = Endpoint {
            ip: from,
            port: self.endpoint().port,
        };
        self.state.lock().local = Address::Inet(local);
        let result = self.connect_from(local, to, patience);
        match result {
            Err(Errno::EINPROGRESS) | Ok(()) => {}
            Err(_) if !was_bound => {
                let mut state = self.state.lock();
                let bound = state.bound.take();
                state.local = Address::unbound(self.family());
                drop(state);
                drop(bound);
            }
            Err(_) => {}
        }
        result
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
            None => Err(Errno::ECONNREFUSED),
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
                self.connect_to(&listener, server, Address::Inet(to), Patience::None)
            }
        };
        match placed {
            Err(Errno::ECONNREFUSED) if patience == Patience::None => {
                // As on Linux the answer comes after the call.
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

    /// What a connection has of its listener: the port, and options.
    fn inherit(&self, parent: &Self) {
        self.settings().inherit(parent.settings());
        self.set_urgent_inline(parent.is_urgent_inline());
        if parent.state.lock().send_buffer_set {
            self.set_send_buffer(parent.send_buffer());
        }
    }

    /// Waits until a connection that was begun is established, or is no more.
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
        // The listener went with all that waited; another thread may have asked for the error.
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

    /// `connect` of UDP: what it sends goes there, and it receives from there alone.
    fn aim_at(&self, bytes: &[u8], family: u16) -> Result<(), Errno> {
        if family == AF_UNSPEC {
            let mut state = self.state.lock();
            state.remote = None;
            state.phase = Phase::Idle;
            drop(state);
            if let Some(port) = self.port_use() {
                port.0.receive_only_from(None);
            }
            return Ok(());
        }
        let (to, from) = self.route(bytes)?;
        self.bind_to_any_port(from)?;
        let port = self.endpoint().port;
        let mut state = self.state.lock();
        state.local = Address::Inet(Endpoint { ip: from, port });
        state.remote = Some(Address::Inet(to));
        state.phase = Phase::Connected { reported: true };
        drop(state);
        if let Some(port) = self.port_use() {
            port.0.receive_only_from(Some(to));
        }
        Ok(())
    }

    fn version_of_packet(&self, to: Ip) -> Version {
        if to.to_v4().is_none() {
            return Version::Six;
        }
        Version::Four {
            mapped: self.family() == Family::Inet6,
        }
    }

    /// What goes with a packet: what its sender chose, or what the socket has.
    fn head(&self, to: Endpoint, choice: Choice) -> Head {
        let settings = self.settings();
        let (hops, service) = if to.ip.to_v4().is_some() {
            let hops = settings.hops.get();
            ((hops != 0).then_some(hops), &settings.service)
        } else {
            (settings.hops6.get().checked_sub(1), &settings.service6)
        };
        let byte = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        Head {
            to,
            hops: choice.hops.unwrap_or(hops.map_or(DEFAULT_HOPS, byte)),
            service: choice.service.unwrap_or(byte(service.get())),
            interface_known: false,
        }
    }

    /// Whether it receives a message of so many bytes of which so many are checked
    /// (`UDPLITE_RECV_CSCOV`); 0 is all.
    fn takes_coverage(&self, coverage: u32, length: usize) -> bool {
        let partly = coverage != 0 && (coverage as usize) < length + UDP_HEADER;
        match self.settings().least_coverage.get().checked_sub(1) {
            Some(least) if partly => least != 0 && coverage >= least,
            _ => true,
        }
    }

    /// Sends a message of UDP. One that nobody receives, or that finds no room, is lost.
    pub(super) fn send_datagram(
        &self,
        from: &mut dyn ByteSource,
        out: &Outgoing<'_>,
        credentials: Credentials,
    ) -> SysResult {
        let length = from.left();
        if length > LONGEST_MESSAGE {
            return Err(Errno::EMSGSIZE);
        }
        let any = if self.family() == Family::Inet6 {
            Ip::ANY6
        } else {
            Ip::ANY4
        };
        self.bind_to_any_port(any)?;
        let connected = self.remote().and_then(|remote| remote.endpoint());
        let (to, source) = match (out.to, connected) {
            (Some((bytes, _)), _) => self.route(bytes)?,
            (None, Some(remote)) => (remote, self.endpoint().ip),
            (None, None) => return Err(Errno::EDESTADDRREQ),
        };
        if to.port == 0 {
            return Err(Errno::EINVAL);
        }
        let choice = Choice::parse(out.control, self.version_of_packet(to.ip))?;
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.state.lock().shut_write {
            return Err(Errno::EPIPE);
        }
        let source = Endpoint {
            ip: choice.source.unwrap_or(source),
            port: self.endpoint().port,
        };
        let bytes = Payload::memory(length) + OVERHEAD;
        let charge = match account::charge(None, bytes) {
            Ok(charge) => charge,
            Err(NoRoom::Full | NoRoom::Memory) => return Err(Errno::ENOBUFS),
        };
        let payload = Payload::take(from, length)?;
        let protocol = self.protocol().unwrap_or(Protocol::Udp);
        let Some(receiver) = ports::find(protocol, to, source) else {
            if connected.is_some() {
                self.inbox.set_error(Errno::ECONNREFUSED);
            }
            return Ok(length);
        };
        if !receiver.takes_coverage(self.settings().coverage.get(), length) {
            return Ok(length);
        }
        let asked = receiver.settings().told.get();
        let head = Head {
            interface_known: asked.intersects(Told::INFO4 | Told::INFO6),
            ..self.head(to, choice)
        };
        let source = Address::Inet(source);
        let segment = Segment::new(payload, source, credentials, charge).with_head(head);
        // Relaxed: an option orders nothing.
        let room = receiver.settings().receive_buffer.load(Ordering::Relaxed);
        let bounds = Bounds {
            messages: None,
            memory: Some(room),
        };
        match receiver
            .inbox
            .push(Arc::new(segment), self.inbox.id(), bounds)
        {
            Ok(()) | Err((Refusal::Full | Refusal::Closed | Refusal::Stranger, _)) => {}
            Err((Refusal::Shut | Refusal::Memory, _)) => {}
        }
        Ok(length)
    }
}
