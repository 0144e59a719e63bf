//! A socket: its state, its readiness and its end.

use super::account::Account;
use super::address::{Address, Family, Protocol, SocketKind};
use super::groups::Groups;
use super::held::Held;
use super::inbox::{Inbox, Patience};
use super::problems::Problems;
use super::queue::Bounds;
use super::settings::Settings;
use crate::fs::node::Hold;
use crate::fs::owner::Band;
use crate::fs::poll::{Notifier, PollMask};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};
use logic::errno::Errno;
use logic::socket::address::{Endpoint, Ip};
use logic::socket::backlog::{Backlog, Place, Refused};
use logic::socket::control::Credentials;
use machine::sync::{Mutex, MutexGuard, Once, SpinLock};

/// The default limit of sent data that is not received (Linux's `net.core.wmem_default`), and of
/// data that UDP holds for a receiver (`rmem_default`). In bytes.
pub const DEFAULT_BUFFER: usize = 212_992;
/// The same limits for TCP: sent data before a connection, sent data on a loopback connection as on
/// Linux, and received data.
const TCP_SEND_BUFFER: usize = 16_384;
const TCP_CONNECTED_BUFFER: usize = 2_626_560;
const TCP_RECEIVE_BUFFER: usize = 131_072;
/// An unconnected receiver of `AF_UNIX` holds one message more than this
/// (`net.unix.max_dgram_qlen`).
pub const MAX_MESSAGES: usize = 10;

/// The phase of a socket's connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Neither connected nor listening.
    Idle,
    /// Waits in a listener's full backlog.
    Connecting,
    /// Connected. `reported` says that `connect` has returned success.
    Connected { reported: bool },
    /// Accepts connections.
    Listening,
    /// An attempt to connect was refused, and `connect` has not returned the error yet.
    Refused,
}

/// A listening socket's backlog of connections to be accepted.
#[derive(Debug)]
pub(super) struct Listener {
    /// The connections: those that are established, and those that wait for a place.
    pub(super) backlog: SpinLock<Backlog<Arc<Embryo>>>,
    /// The notifier of the listening socket.
    pub(super) notifier: Arc<Notifier>,
    /// The credentials of the task that called `listen`.
    pub(super) credentials: Credentials,
}

/// A connection in a backlog, which is not accepted yet: its server side and its client.
#[derive(Debug)]
pub(super) struct Embryo {
    /// The socket that `accept` will return.
    pub(super) server: Arc<Socket>,
    client: Weak<Socket>,
    /// Whether `accept` has returned `server`. Changed with the backlog locked.
    accepted: AtomicBool,
}

/// The part of a socket that changes, under the socket's lock.
#[derive(Debug)]
pub(super) struct State {
    /// The socket's own address.
    pub(super) local: Address,
    /// The address of the other side, or of the default destination. `None` if there is none.
    pub(super) remote: Option<Address>,
    /// The inbox of the other side, to which sent data goes. `None` if there is none.
    pub(super) peer: Option<Arc<Inbox>>,
    pub(super) phase: Phase,
    /// The backlog, if the socket listens.
    pub(super) listener: Option<Arc<Listener>>,
    /// The listener whose backlog is full and in which this socket waits for a place (TCP). `None`
    /// if the socket does not wait.
    pub(super) waits_at: Option<Weak<Listener>>,
    /// A reference that keeps the socket's address in use. `None` if the socket is not bound.
    pub(super) bound: Option<Hold>,
    /// Whether the socket has stopped writing (`SHUT_WR`).
    pub(super) shut_write: bool,
    /// The credentials of the task that connected the other side or made it listen (`SO_PEERCRED`).
    pub(super) peer_credentials: Credentials,
    /// Whether a program has set `SO_SNDBUF`.
    pub(super) send_buffer_set: bool,
    /// Whether a program has chosen the IP address with `bind`. The address then survives a
    /// disconnect.
    pub(super) chose_address: bool,
    /// Whether a program has chosen the port with `bind`. The port then survives a disconnect.
    pub(super) chose_port: bool,
}

/// A socket. The lock of `state` is taken before those of inboxes, never before that of another
/// socket or a backlog.
#[derive(Debug)]
pub struct Socket {
    family: Family,
    kind: SocketKind,
    /// The protocol of the socket. `None` for `AF_UNIX`, and for netlink about routes.
    protocol: Option<Protocol>,
    this: Weak<Self>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) account: Arc<Account>,
    settings: Settings,
    pub(super) state: SpinLock<State>,
    /// Held while the socket is being connected, so that it gets one peer.
    connecting: Mutex<()>,
    /// Netlink: held while requests are answered, so that answers to two threads do not mix.
    pub(super) answering: Mutex<()>,
    /// Sent data that the socket holds back.
    pub(super) held: Held,
    /// The errors of packets that the program has requested (`IP_RECVERR`) and not received yet.
    pub(super) problems: Problems,
    pub(super) groups: Groups,
    /// Whether `IPV6_ADDRFORM` has turned this IPv6 socket into an IPv4 socket.
    became_four: AtomicBool,
}

/// The functions that return the caller's credentials: with its real and with its effective user.
static CALLER: Once<[fn() -> Credentials; 2]> = Once::new();

/// Sets the functions that return the credentials of the calling process: with its real user, and
/// with its effective user. Only the first call has an effect.
pub(super) fn set_caller(caller: [fn() -> Credentials; 2]) {
    // The kernel calls this once.
    let _ = CALLER.set(caller);
}

/// The function that returns whether the caller may change networks.
static ADMIN: Once<fn() -> bool> = Once::new();

/// Sets the function that returns whether the calling process may change networks
/// (`CAP_NET_ADMIN`). Only the first call has an effect.
pub(super) fn set_admin(is_admin: fn() -> bool) {
    // The kernel calls this once.
    let _ = ADMIN.set(is_admin);
}

/// Returns whether the caller may change networks (`CAP_NET_ADMIN`).
pub(super) fn caller_is_admin() -> bool {
    ADMIN.get().is_some_and(|is_admin| is_admin())
}

/// Returns the number of the calling process with its real user and group. Without a process,
/// returns [`Credentials::NO_PROCESS`].
pub(super) fn caller() -> Credentials {
    CALLER
        .get()
        .map_or(Credentials::NO_PROCESS, |[real, _]| real())
}

/// Returns the caller's credentials, with its effective user. Peers see these.
fn acting_caller() -> Credentials {
    CALLER
        .get()
        .map_or(Credentials::NO_PROCESS, |[_, acting]| acting())
}

impl Socket {
    /// Creates a socket with the protocol that `family` and `kind` imply.
    pub fn new(family: Family, kind: SocketKind) -> Arc<Self> {
        let protocol = match (family, kind) {
            (Family::Unix | Family::Netlink, _) => None,
            (_, SocketKind::Stream) => Some(Protocol::Tcp),
            _ => Some(Protocol::Udp),
        };
        Self::with_protocol(family, kind, protocol)
    }

    /// Creates a socket with the protocol `protocol`, which `family` and `kind` need not imply.
    pub fn with_protocol(
        family: Family,
        kind: SocketKind,
        protocol: Option<Protocol>,
    ) -> Arc<Self> {
        let notifier = Arc::new(Notifier::new());
        let tcp = protocol == Some(Protocol::Tcp);
        let settings = Settings::default();
        let (send, receive) = if tcp {
            (TCP_SEND_BUFFER, TCP_RECEIVE_BUFFER)
        } else {
            (DEFAULT_BUFFER, DEFAULT_BUFFER)
        };
        // As on Linux, several sockets of ICMP may have one identifier.
        settings.reuse_address.set(protocol == Some(Protocol::Icmp));
        // Relaxed: no other task has the socket yet.
        settings.receive_buffer.store(receive, Ordering::Relaxed);
        Arc::new_cyclic(|this| Self {
            family,
            kind,
            protocol,
            this: this.clone(),
            inbox: Inbox::new(notifier.clone()),
            account: Account::new(send, notifier.clone()),
            notifier,
            settings,
            state: SpinLock::new(State {
                local: Address::unbound(family),
                remote: None,
                peer: None,
                phase: Phase::Idle,
                listener: None,
                waits_at: None,
                bound: None,
                shut_write: false,
                peer_credentials: Credentials::NO_PROCESS,
                send_buffer_set: false,
                chose_address: false,
                chose_port: false,
            }),
            connecting: Mutex::new(()),
            answering: Mutex::new(()),
            held: Held::new(),
            problems: Problems::new(),
            groups: Groups::new(),
            became_four: AtomicBool::new(false),
        })
    }

    /// Returns the address family, which [`Self::become_version_4`] may have changed.
    pub fn family(&self) -> Family {
        // Relaxed: an option orders nothing.
        if self.became_four.load(Ordering::Relaxed) {
            return Family::Inet;
        }
        self.family
    }

    /// Turns a socket of version 6 that is connected over version 4 into a socket of version 4
    /// (`IPV6_ADDRFORM`).
    ///
    /// # Errors
    /// Fails with `ENOTCONN` if the socket is not connected, and with `EADDRNOTAVAIL` if it is not
    /// connected over version 4.
    pub fn become_version_4(&self) -> Result<(), Errno> {
        let remote = self.remote().and_then(|remote| remote.endpoint());
        let remote = remote.ok_or(Errno::ENOTCONN)?;
        if remote.ip.to_v4().is_none() || self.settings.v6_only.get() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.became_four.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns a number that no other socket has (`SO_COOKIE`).
    pub fn number(&self) -> u64 {
        self.inbox.id()
    }

    /// Returns the memory that is charged for data that waits to be received, in bytes.
    pub fn memory(&self) -> usize {
        self.inbox.memory()
    }

    /// Returns the number of messages that were dropped because the inbox was full.
    pub fn drops(&self) -> u32 {
        self.inbox.drops()
    }

    /// Returns the type of the socket.
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Returns the protocol, or `None` if Linux's number of it is 0.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Returns the values of the socket options.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns whether the family of the socket is `AF_UNIX`.
    pub(super) fn is_unix(&self) -> bool {
        self.family == Family::Unix
    }

    /// Returns whether the protocol is TCP.
    pub(super) fn is_tcp(&self) -> bool {
        self.protocol == Some(Protocol::Tcp)
    }

    /// Returns a weak reference to the socket.
    pub(super) fn weak(&self) -> Weak<Self> {
        self.this.clone()
    }

    /// Returns the socket's own address.
    pub fn local(&self) -> Address {
        self.state.lock().local.clone()
    }

    /// Returns the address of the other side, or `None` if the socket is not connected. A
    /// connection of TCP that was reset, or ended on both sides, has none either.
    pub fn peer_name(&self) -> Option<Address> {
        let over = || {
            let look = self.inbox.look();
            look.reset || (look.peer_ended && self.state.lock().shut_write)
        };
        if self.is_tcp() && over() {
            return None;
        }
        self.remote()
    }

    /// Returns the address that the other side has, or had when the connection ended. Returns
    /// `None` if the socket was not connected.
    pub fn remote(&self) -> Option<Address> {
        if self.family == Family::Netlink {
            return Some(Address::KERNEL);
        }
        let state = self.state.lock();
        match state.phase {
            Phase::Connected { .. } => state.remote.clone(),
            _ => None,
        }
    }

    /// Returns the credentials of the other side (`SO_PEERCRED`).
    pub fn peer_credentials(&self) -> Credentials {
        self.state.lock().peer_credentials
    }

    /// Returns whether the socket accepts connections (`SO_ACCEPTCONN`).
    pub fn is_listening(&self) -> bool {
        self.state.lock().phase == Phase::Listening
    }

    /// Returns the pending error and clears it (`SO_ERROR`). Returns `None` if no error is pending.
    pub fn take_error(&self) -> Option<Errno> {
        self.inbox.take_error()
    }

    /// Makes the next call on the socket fail with `error`. Wakes no task.
    pub fn keep_error(&self, error: Errno) {
        self.inbox.put_error(error);
    }

    /// Returns whether the socket is bound.
    pub fn is_bound(&self) -> bool {
        self.state.lock().bound.is_some()
    }

    /// Returns the most memory that data from this socket may take until it is received, in bytes
    /// (`SO_SNDBUF`).
    pub fn send_buffer(&self) -> usize {
        self.account.limit()
    }

    /// Sets the most memory that data from this socket may take until it is received, in bytes.
    pub fn set_send_buffer(&self, bytes: usize) {
        self.state.lock().send_buffer_set = true;
        self.account.set_limit(bytes);
    }

    /// Returns whether a call that receives may wait for data, or finds the end of a TCP stream.
    pub(super) fn can_receive(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Connected { .. })
            || (self.is_tcp() && self.inbox.look().ended)
    }

    /// Returns whether the socket waits in a listener's full backlog.
    pub(super) fn is_connecting(&self) -> bool {
        self.state.lock().phase == Phase::Connecting
    }

    /// Returns the number of bytes that wait to be received, and the length of the first message.
    /// In a stream, an urgent byte that is received alone ends the count.
    pub fn waiting(&self) -> (usize, usize) {
        self.inbox.waiting()
    }

    /// Returns the memory of data that this socket has sent and that is not received yet, in bytes.
    /// Returns 0 for UDP, ICMP and netlink, whose messages are not charged to the sender.
    pub fn unreceived(&self) -> usize {
        self.account.used()
    }

    /// Returns how long a call that begins now may wait. If `nonblocking`, it may not wait.
    /// Otherwise the limit is the timeout for sending (`SO_SNDTIMEO`) if `sends`, else the one for
    /// receiving (`SO_RCVTIMEO`).
    pub(super) fn patience(&self, nonblocking: bool, sends: bool) -> Patience {
        if nonblocking {
            return Patience::None;
        }
        let timeout = if sends {
            &self.settings.send_timeout
        } else {
            &self.settings.receive_timeout
        };
        Patience::Until(timeout.deadline())
    }

    /// Connects two new sockets (`socketpair`).
    pub(super) fn join(a: &Self, b: &Self) {
        let who = acting_caller();
        for (one, other) in [(a, b), (b, a)] {
            one.set_connected(other.inbox.clone(), Address::unbound(one.family), who, true);
            if one.kind == SocketKind::Datagram {
                one.inbox.receive_only_from(Some(other.inbox.id()));
            }
        }
    }

    /// Takes the lock of calls that connect the socket. Dropping the result releases the lock.
    ///
    /// # Errors
    /// Fails with `EALREADY` if another thread is connecting the socket.
    pub(super) fn connect_alone(&self) -> Result<MutexGuard<'_, ()>, Errno> {
        self.connecting.try_lock().ok_or(Errno::EALREADY)
    }

    /// Connects the socket to the owner of the inbox `peer`, which has the address `remote` and the
    /// credentials `credentials`. `reported` says that `connect` need not report the success any
    /// more.
    pub(super) fn set_connected(
        &self,
        peer: Arc<Inbox>,
        remote: Address,
        credentials: Credentials,
        reported: bool,
    ) {
        let phase = Phase::Connected { reported };
        self.set_peer(peer, remote, credentials, phase, None);
    }

    fn set_peer(
        &self,
        peer: Arc<Inbox>,
        remote: Address,
        credentials: Credentials,
        phase: Phase,
        waits_at: Option<Weak<Listener>>,
    ) {
        self.inbox.readmit(peer.id());
        let mut state = self.state.lock();
        let old = state.peer.replace(peer);
        state.remote = Some(remote);
        state.peer_credentials = credentials;
        state.phase = phase;
        state.waits_at = waits_at;
        let grows = self.is_tcp() && !state.send_buffer_set;
        drop(state);
        drop(old);
        if grows {
            self.account.set_limit(TCP_CONNECTED_BUFFER);
        }
    }

    /// Records that `connect` has returned success.
    pub(super) fn set_reported(&self) {
        let mut state = self.state.lock();
        if let Phase::Connected { reported } = &mut state.phase {
            *reported = true;
        }
    }

    /// Completes a connection that has moved up in the listener's backlog.
    fn establish(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Connecting {
            state.phase = Phase::Connected { reported: false };
            state.waits_at = None;
        }
        drop(state);
        self.notifier.notify(PollMask::WRITABLE);
        self.signal_connected();
    }

    /// Sends the signal for a new connection. As on Linux, only TCP has one.
    fn signal_connected(&self) {
        if self.is_tcp() {
            self.notifier.signal(Band::Out);
        }
    }

    /// Ends a connection that its listener did not accept before it closed.
    fn abandon(&self) {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Connecting => {
                state.phase = Phase::Refused;
                state.remote = None;
                let (peer, waits_at) = (state.peer.take(), state.waits_at.take());
                // Put before the lock is released: a task that sees the new phase also sees the
                // error.
                self.inbox.put_error(Errno::ECONNREFUSED);
                drop(state);
                drop((peer, waits_at));
                self.notifier.notify(
                    PollMask::ERR | PollMask::HUP | PollMask::READABLE | PollMask::WRITABLE,
                );
                self.notifier.signal(Band::Error);
            }
            Phase::Connected { .. } => {
                drop(state);
                let band = if self.is_tcp() {
                    Band::Error
                } else {
                    Band::HangUp
                };
                self.inbox.reset(Errno::ECONNRESET, band);
            }
            // The socket is not connected yet. `connect_to` will find the closed backlog.
            Phase::Idle | Phase::Refused | Phase::Listening => {}
        }
    }

    /// Returns whether this socket or the other side keeps the socket from sending. `state` is the
    /// locked state of this socket.
    pub(super) fn cannot_send(&self, state: &State) -> bool {
        state.shut_write
            || self.inbox.is_reset()
            || (self.is_unix()
                && self.kind.connects()
                && state.peer.as_ref().is_some_and(|peer| peer.is_over()))
    }

    /// Returns the events that the socket is ready for.
    pub(super) fn ready(&self) -> PollMask {
        let mut mask = PollMask::empty();
        let state = self.state.lock();
        if let Some(listener) = state.listener.clone() {
            drop(state);
            if !listener.backlog.lock().is_empty() {
                mask |= PollMask::READABLE;
            }
            return mask;
        }
        let look = self.inbox.look();
        mask.set(PollMask::ERR, look.error || self.problems.any());
        if state.phase == Phase::Connecting {
            return mask;
        }
        let refused = state.phase == Phase::Refused;
        let no_reading = look.ended || look.shut || refused;
        let no_writing = self.cannot_send(&state);
        if no_reading {
            mask |= PollMask::RDHUP | PollMask::READABLE;
        }
        if look.readable {
            mask |= PollMask::READABLE;
        }
        mask.set(PollMask::PRI, look.urgent);
        let unconnected = self.kind.connects() && !matches!(state.phase, Phase::Connected { .. });
        if (no_reading && no_writing) || unconnected {
            mask |= PollMask::HUP;
        }
        let peer = state.peer.clone();
        let shut_write = state.shut_write;
        drop(state);
        let full = self.is_unix()
            && self.kind == SocketKind::Datagram
            && peer.is_some_and(|peer| self.peer_is_full(&peer));
        if !self.account.is_writable() {
            self.account.note_lack();
        }
        if (self.account.is_writable() && !full) || (self.is_tcp() && (shut_write || look.reset)) {
            mask |= PollMask::WRITABLE;
        }
        mask
    }

    /// Returns whether a message to the owner of `peer` would have to wait. If so, the socket is
    /// notified when there is room. A receiver that is connected to this socket always has room for
    /// it.
    fn peer_is_full(&self, peer: &Arc<Inbox>) -> bool {
        !peer.receives_only_from(self.inbox.id())
            && peer.is_full_for(
                &self.notifier,
                Bounds {
                    messages: Some(MAX_MESSAGES),
                    memory: None,
                },
            )
    }

    /// Begins to accept connections. At most `backlog` of them wait to be accepted. If the socket
    /// accepts connections already, changes that limit.
    pub(super) fn start_listening(&self, backlog: usize) {
        let listener = Arc::new(Listener {
            backlog: SpinLock::new(Backlog::new(backlog)),
            notifier: self.notifier.clone(),
            credentials: acting_caller(),
        });
        let mut state = self.state.lock();
        let known = state.listener.clone();
        if known.is_none() {
            state.listener = Some(listener);
            state.phase = Phase::Listening;
        }
        drop(state);
        if let Some(known) = known {
            loop {
                let promoted = known.backlog.lock().set_limit(backlog).cloned();
                let Some(embryo) = promoted else { break };
                embryo.establish();
            }
            // Wakes tasks that found the backlog full.
            self.notifier.notify(PollMask::empty());
        }
    }

    /// Makes `server` the other side of this socket's connection, and puts it into the backlog of
    /// `listener`. If the backlog is full, TCP waits in it, and other sockets wait in this call.
    ///
    /// # Errors
    /// Fails with `ECONNREFUSED` if the listener is gone, with `ENOBUFS` if memory is short, with
    /// `EAGAIN` instead of waiting, and with the error of a signal.
    pub(super) fn connect_to(
        &self,
        listener: &Arc<Listener>,
        server: Arc<Self>,
        remote: Address,
        patience: Patience,
    ) -> Result<Place, Errno> {
        let who = acting_caller();
        let local = self.local();
        server.set_connected(self.inbox.clone(), local, who, true);
        let peer = server.inbox.clone();
        let tcp = self.is_tcp();
        let mut embryo = Arc::new(Embryo {
            server,
            client: self.weak(),
            accepted: AtomicBool::new(false),
        });
        let ours = embryo.clone();
        let place = loop {
            let pushed = listener.backlog.lock().push(embryo, tcp);
            let (back, failed) = match pushed {
                Ok(place) => break place,
                Err(Refused::Closed(back)) => (back, Some(Errno::ECONNREFUSED)),
                Err(Refused::Memory(back)) => (back, Some(Errno::ENOBUFS)),
                Err(Refused::Full(back)) => {
                    let waited = patience.wait(&listener.notifier, || {
                        let backlog = listener.backlog.lock();
                        !backlog.is_full() || backlog.is_closed()
                    });
                    (back, waited.err())
                }
            };
            if let Some(error) = failed {
                // Without a peer, dropping `server` does not end the stream of this socket.
                let peer = back.server.state.lock().peer.take();
                drop(peer);
                return Err(error);
            }
            embryo = back;
        };
        let (phase, waits_at) = match place {
            Place::Established => (Phase::Connected { reported: false }, None),
            Place::Waiting => (Phase::Connecting, Some(Arc::downgrade(listener))),
        };
        self.set_peer(peer, remote, listener.credentials, phase, waits_at);
        // The listener may have closed before this socket was marked as connected. Its turn may
        // have come before it was marked as waiting.
        let backlog = listener.backlog.lock();
        // Relaxed: changed under the same lock.
        let abandoned = backlog.is_closed() && !ours.accepted.load(Ordering::Relaxed);
        let has_turn =
            place == Place::Waiting && !backlog.waits(|embryo| Arc::ptr_eq(embryo, &ours));
        drop(backlog);
        if abandoned {
            self.abandon();
        } else if has_turn {
            self.establish();
        }
        listener.notifier.notify(PollMask::READABLE);
        if place == Place::Established && !abandoned {
            self.signal_connected();
        }
        listener.notifier.signal(Band::In);
        Ok(place)
    }

    /// Takes the oldest established connection from the backlog and returns its server side. Waits
    /// for one unless `nonblocking`, at most for the socket's receive timeout (`SO_RCVTIMEO`).
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if the type has no connections, and with `EINVAL` if the socket does
    /// not listen or stops listening. Fails with `EAGAIN` instead of waiting and at the timeout,
    /// and with the error of a signal that interrupts the wait.
    pub fn accept(&self, nonblocking: bool) -> Result<Arc<Self>, Errno> {
        if !self.kind.connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        let listener = self.state.lock().listener.clone();
        let listener = listener.ok_or(Errno::EINVAL)?;
        let patience = self.patience(nonblocking, false);
        loop {
            let mut backlog = listener.backlog.lock();
            let accepted = backlog
                .accept()
                .map(|(first, promoted)| (first, promoted.cloned()));
            if let Some((embryo, _)) = &accepted {
                // Relaxed: it is read under this lock.
                embryo.accepted.store(true, Ordering::Relaxed);
            }
            let closed = backlog.is_closed();
            drop(backlog);
            if let Some((embryo, promoted)) = accepted {
                if let Some(promoted) = promoted {
                    promoted.establish();
                }
                // Wakes tasks that wait for a place in the backlog.
                listener.notifier.notify(PollMask::empty());
                if self.is_unix() {
                    let pass = self.settings.pass_credentials.get();
                    embryo.server.set_pass_credentials(pass);
                }
                return Ok(embryo.server.clone());
            }
            if closed || self.inbox.look().shut {
                return Err(Errno::EINVAL);
            }
            patience.wait(&listener.notifier, || {
                let backlog = listener.backlog.lock();
                !backlog.is_empty() || backlog.is_closed() || self.inbox.look().shut
            })?;
        }
    }

    /// Closes the backlog of `listener`, and ends the connections in it.
    pub(super) fn stop_listening(listener: &Listener) {
        let abandoned = listener.backlog.lock().close();
        for embryo in &abandoned {
            // Without a peer, dropping `server` does not end the client. `abandon` does that here.
            let peer = embryo.server.state.lock().peer.take();
            drop(peer);
            if let Some(client) = embryo.client.upgrade() {
                client.abandon();
            }
        }
        listener.notifier.notify(PollMask::HUP | PollMask::READABLE);
    }

    /// Removes the connection of the socket at the address `client` from the backlog of `listener`.
    /// If it was established by now, the first connection that waits for a place is established in
    /// its place.
    pub(super) fn give_turn_up(listener: &Listener, client: *const Self) {
        let gone = {
            let mut backlog = listener.backlog.lock();
            let (gone, promoted) = backlog.remove(|embryo| embryo.client.as_ptr() == client);
            (gone, promoted.cloned())
        };
        if let (_, Some(promoted)) = &gone {
            promoted.establish();
        }
    }

    /// Closes the reading direction, the writing direction, or both.
    ///
    /// # Errors
    /// Fails with `ENOTCONN` if the socket is neither connected nor listening, and not of
    /// `AF_UNIX`. As on Linux, the direction is closed nevertheless.
    pub fn shut_down(&self, reading: bool, writing: bool) -> Result<(), Errno> {
        if writing && self.is_tcp() {
            self.release_held();
        }
        let mut state = self.state.lock();
        let connected = matches!(state.phase, Phase::Connected { .. });
        let look = self.inbox.look();
        let lost = self.is_tcp() && (look.reset || (look.peer_ended && state.shut_write));
        let unconnected = !self.is_unix() && (!connected || lost) && state.listener.is_none();
        state.shut_write |= writing;
        let peer = state.peer.clone().filter(|_| self.kind.connects());
        drop(state);
        if reading {
            self.inbox.shut(self.is_unix());
            if let Some(peer) = peer.as_ref().filter(|_| self.is_unix()) {
                // The peer cannot write any more.
                peer.tell_of_change();
            }
        }
        if writing {
            self.inbox.note_owner_ended();
            match &peer {
                Some(peer) if self.is_unix() => {
                    let band = if reading { Band::HangUp } else { Band::In };
                    peer.end(None, band);
                }
                Some(peer) => {
                    peer.end_stream();
                }
                None => {}
            }
            self.inbox.tell_of_change();
        }
        // As on Linux, the error does not undo the shutdown.
        if unconnected {
            return Err(Errno::ENOTCONN);
        }
        Ok(())
    }

    /// Returns the address that an `IPv4` or `IPv6` socket is bound to. Returns the wildcard of
    /// version 4 with port 0 for another socket.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.local().endpoint().unwrap_or(Endpoint {
            ip: Ip::ANY4,
            port: 0,
        })
    }
}

impl Embryo {
    fn establish(&self) {
        if let Some(client) = self.client.upgrade() {
            client.establish();
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let (listener, peer) = (state.listener.take(), state.peer.take());
        let (waits_at, shut_write) = (state.waits_at.take(), state.shut_write);
        let bound = state.bound.take();
        if let Some(listener) = listener {
            Self::stop_listening(&listener);
        }
        if let Some(listener) = waits_at.and_then(|listener| listener.upgrade()) {
            Self::give_turn_up(&listener, self.this.as_ptr());
        }
        let unread = self.inbox.close();
        if let Some(peer) = peer.filter(|_| self.kind.connects()) {
            if self.is_tcp() && !shut_write {
                self.release_at_end(&peer);
            }
            let linger = &self.settings.linger;
            let aborts = linger.get() && self.settings.linger_seconds.get() == 0;
            if self.is_unix() {
                peer.end(unread.then_some(Errno::ECONNRESET), Band::HangUp);
            } else if unread || aborts {
                let error = if shut_write {
                    Errno::EPIPE
                } else {
                    Errno::ECONNRESET
                };
                peer.reset(error, Band::Error);
            } else if !peer.end_stream() {
                peer.tell_of_change();
            }
        }
        drop(bound);
        // Watchers find that the socket is gone, and forget it.
        self.notifier.notify_watchers(PollMask::HUP);
    }
}
