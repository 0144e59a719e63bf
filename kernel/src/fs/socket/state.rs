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

/// What a socket may have sent before it is received (Linux's `net.core.wmem_default`), and what UDP
/// holds for it (`rmem_default`).
pub const DEFAULT_BUFFER: usize = 212_992;
/// The same of TCP before it is connected, and what Linux makes of it over the loopback interface.
const TCP_SEND_BUFFER: usize = 16_384;
const TCP_CONNECTED_BUFFER: usize = 2_626_560;
const TCP_RECEIVE_BUFFER: usize = 131_072;
/// An unconnected receiver of `AF_UNIX` holds so many messages and one
/// (`net.unix.max_dgram_qlen`).
pub const MAX_MESSAGES: usize = 10;

/// How far a socket is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Neither connected nor listening.
    Idle,
    /// It waits for its turn at a listener.
    Connecting,
    /// It is connected; `reported` once `connect` has said so.
    Connected { reported: bool },
    /// It accepts connections.
    Listening,
    /// A connection that was begun was refused, which `connect` has not said.
    Refused,
}

/// Where connections wait.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) backlog: SpinLock<Backlog<Arc<Embryo>>>,
    pub(super) notifier: Arc<Notifier>,
    /// Of who called `listen`.
    pub(super) credentials: Credentials,
}

/// A connection that nobody has accepted.
#[derive(Debug)]
pub(super) struct Embryo {
    pub(super) server: Arc<Socket>,
    client: Weak<Socket>,
    /// Changed under the lock of the backlog.
    accepted: AtomicBool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) local: Address,
    pub(super) remote: Option<Address>,
    /// Where what it sends goes.
    pub(super) peer: Option<Arc<Inbox>>,
    pub(super) phase: Phase,
    pub(super) listener: Option<Arc<Listener>>,
    /// At which listener it waits for its turn.
    pub(super) waits_at: Option<Weak<Listener>>,
    /// Keeps its name.
    pub(super) bound: Option<Hold>,
    /// It has stopped writing.
    pub(super) shut_write: bool,
    /// Who made the other side (`SO_PEERCRED`).
    pub(super) peer_credentials: Credentials,
    /// A program has set `SO_SNDBUF`.
    pub(super) send_buffer_set: bool,
    /// A program has chosen its address, and its port: it keeps them when it is connected no more.
    pub(super) chose_address: bool,
    pub(super) chose_port: bool,
}

/// A socket. Its lock is taken before those of inboxes, never before that of another socket or a
/// backlog.
#[derive(Debug)]
pub struct Socket {
    family: Family,
    kind: SocketKind,
    /// `None`: of `AF_UNIX`, or of netlink about routes.
    protocol: Option<Protocol>,
    this: Weak<Self>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) account: Arc<Account>,
    settings: Settings,
    pub(super) state: SpinLock<State>,
    /// Held by who connects it, so that it gets one peer.
    connecting: Mutex<()>,
    /// Of netlink: held while requests are answered, so that answers to two threads do not mix.
    pub(super) answering: Mutex<()>,
    /// What it sent and holds back.
    pub(super) held: Held,
    /// Errors that it asked for.
    pub(super) problems: Problems,
    pub(super) groups: Groups,
    /// `IPV6_ADDRFORM`: it is of version 4 from now on.
    became_four: AtomicBool,
}

/// Who calls: as the real user, and as whom it acts.
static CALLER: Once<[fn() -> Credentials; 2]> = Once::new();

/// Says how to find out who calls.
pub(super) fn set_caller(caller: [fn() -> Credentials; 2]) {
    // The first call sets it: there is one.
    let _ = CALLER.set(caller);
}

/// Whether the caller may change networks.
static ADMIN: Once<fn() -> bool> = Once::new();

/// Says how to find out whether the caller may change networks.
pub(super) fn set_admin(is_admin: fn() -> bool) {
    // The first call sets it: there is one.
    let _ = ADMIN.set(is_admin);
}

/// Whether the caller may change networks (`CAP_NET_ADMIN`).
pub(super) fn caller_is_admin() -> bool {
    ADMIN.get().is_some_and(|is_admin| is_admin())
}

/// Who calls.
pub(super) fn caller() -> Credentials {
    CALLER.get().map_or(Credentials::NOBODY, |[real, _]| real())
}

/// Who calls, as whom it acts: what peers see.
fn acting_caller() -> Credentials {
    CALLER
        .get()
        .map_or(Credentials::NOBODY, |[_, acting]| acting())
}

impl Socket {
    /// A new socket.
    pub fn new(family: Family, kind: SocketKind) -> Arc<Self> {
        let protocol = match (family, kind) {
            (Family::Unix | Family::Netlink, _) => None,
            (_, SocketKind::Stream) => Some(Protocol::Tcp),
            _ => Some(Protocol::Udp),
        };
        Self::with_protocol(family, kind, protocol)
    }

    /// A new socket with a protocol that its family and kind do not tell.
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
        // As on Linux several may have one identifier.
        settings.reuse_address.set(protocol == Some(Protocol::Icmp));
        // Relaxed: nobody else has it yet.
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
                peer_credentials: Credentials::NOBODY,
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

    /// Its family.
    pub fn family(&self) -> Family {
        // Relaxed: an option orders nothing.
        if self.became_four.load(Ordering::Relaxed) {
            return Family::Inet;
        }
        self.family
    }

    /// Makes a socket of version 6 that is connected by version 4 one of version 4.
    ///
    /// # Errors
    /// `ENOTCONN`: it is not connected. `EADDRNOTAVAIL`: not by version 4.
    pub fn become_version_4(&self) -> Result<(), Errno> {
        let remote = self.remote().and_then(|remote| remote.endpoint());
        let remote = remote.ok_or(Errno::ENOTCONN)?;
        if remote.ip.to_v4().is_none() || self.settings.v6_only.get() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.became_four.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// A number that no other socket has (`SO_COOKIE`).
    pub fn number(&self) -> u64 {
        self.inbox.id()
    }

    /// Memory of what waits to be received.
    pub fn memory(&self) -> usize {
        self.inbox.memory()
    }

    /// Messages that found no room.
    pub fn drops(&self) -> u32 {
        self.inbox.drops()
    }

    /// What it carries.
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Its protocol, if that has a number above 0.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Its options.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn is_unix(&self) -> bool {
        self.family == Family::Unix
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.protocol == Some(Protocol::Tcp)
    }

    pub(super) fn weak(&self) -> Weak<Self> {
        self.this.clone()
    }

    /// Its name.
    pub fn local(&self) -> Address {
        self.state.lock().local.clone()
    }

    /// The name of the other side, if it is connected. TCP that was reset, or ended on both sides,
    /// has none.
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

    /// The name that the other side has, or had.
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

    /// Who made the other side (`SO_PEERCRED`).
    pub fn peer_credentials(&self) -> Credentials {
        self.state.lock().peer_credentials
    }

    /// Whether it accepts connections (`SO_ACCEPTCONN`).
    pub fn is_listening(&self) -> bool {
        self.state.lock().phase == Phase::Listening
    }

    /// Takes the error that waits (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        self.inbox.take_error()
    }

    /// Whether it has a name.
    pub fn is_bound(&self) -> bool {
        self.state.lock().bound.is_some()
    }

    /// What it may have sent before it is received (`SO_SNDBUF`).
    pub fn send_buffer(&self) -> usize {
        self.account.limit()
    }

    /// Sets that.
    pub fn set_send_buffer(&self, bytes: usize) {
        self.state.lock().send_buffer_set = true;
        self.account.set_limit(bytes);
    }

    /// Whether a receiver may wait for something, or is at the end.
    pub(super) fn can_receive(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Connected { .. })
            || (self.is_tcp() && self.inbox.look().ended)
    }

    /// Whether it waits for its turn at a listener.
    pub(super) fn is_connecting(&self) -> bool {
        self.state.lock().phase == Phase::Connecting
    }

    /// Bytes that wait to be received, and those of the first message.
    pub fn waiting(&self) -> (usize, usize) {
        self.inbox.waiting()
    }

    /// Memory of what it sent and nobody has received.
    pub fn unreceived(&self) -> usize {
        self.account.used()
    }

    /// How long a call of a sender or a receiver waits.
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

    /// Connects it alone, as long as the result exists.
    ///
    /// # Errors
    /// `EALREADY`: another thread does.
    pub(super) fn connect_alone(&self) -> Result<MutexGuard<'_, ()>, Errno> {
        self.connecting.try_lock().ok_or(Errno::EALREADY)
    }

    /// It is connected to the owner of this inbox.
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

    /// `connect` says that it is connected.
    pub(super) fn set_reported(&self) {
        let mut state = self.state.lock();
        if let Phase::Connected { reported } = &mut state.phase {
            *reported = true;
        }
    }

    /// Its turn at a listener has come.
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

    /// As on Linux TCP tells by signals that it is connected, and others do not.
    fn signal_connected(&self) {
        if self.is_tcp() {
            self.notifier.signal(Band::Out);
        }
    }

    /// The listener went, and nobody accepts its connection any more.
    fn abandon(&self) {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Connecting => {
                state.phase = Phase::Refused;
                state.remote = None;
                let (peer, waits_at) = (state.peer.take(), state.waits_at.take());
                // Who sees that it does not wait sees why.
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
            // It is not connected yet, and finds out when it is.
            Phase::Idle | Phase::Refused | Phase::Listening => {}
        }
    }

    /// Whether it may not write: by itself, or by the other side.
    pub(super) fn cannot_send(&self, state: &State) -> bool {
        state.shut_write
            || self.inbox.is_reset()
            || (self.is_unix()
                && self.kind.connects()
                && state.peer.as_ref().is_some_and(|peer| peer.is_over()))
    }

    /// What it is ready for.
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

    /// Whether a message to the owner of this inbox would have to wait; this socket is told when
    /// not. Who is connected to us takes all that we may have sent.
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

    /// Begins to accept connections, or changes how many may wait.
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
            // Who found it full.
            self.notifier.notify(PollMask::empty());
        }
    }

    /// Makes the other side of a connection of this socket, and puts it to those that wait at a
    /// listener. A stream of TCP waits for its turn there, others wait here.
    ///
    /// # Errors
    /// `ECONNREFUSED`: the listener is gone. `EAGAIN`; those of a signal.
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
                // The other side never was: its end means nothing to this one.
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
        // The listener may have gone before we said that we are connected, and our turn may have
        // come before we said that we wait for it.
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

    /// Takes the oldest connection that waits.
    ///
    /// # Errors
    /// `EINVAL`: it does not listen. `EAGAIN`; those of a signal.
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
                // Who waits for a place in the backlog.
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

    /// Ends a listener's work: those that nobody accepts are told.
    pub(super) fn stop_listening(listener: &Listener) {
        let abandoned = listener.backlog.lock().close();
        for embryo in &abandoned {
            // Its end means nothing to the other side, which is told here.
            let peer = embryo.server.state.lock().peer.take();
            drop(peer);
            if let Some(client) = embryo.client.upgrade() {
                client.abandon();
            }
        }
        listener.notifier.notify(PollMask::HUP | PollMask::READABLE);
    }

    /// Takes the connection of the client at this place out of those that wait at a listener.
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

    /// Closes one direction or both.
    ///
    /// # Errors
    /// `ENOTCONN`: it is not connected, and its protocol cares.
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
                // It cannot write any more.
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
        // As on Linux what was asked for is done all the same.
        if unconnected {
            return Err(Errno::ENOTCONN);
        }
        Ok(())
    }

    /// Where an `IPv4` or `IPv6` socket is bound.
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
        // Who watches it finds that it is gone, and forgets it.
        self.notifier.notify_watchers(PollMask::HUP);
    }
}
