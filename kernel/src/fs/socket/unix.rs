//! Sockets of `AF_UNIX`: names, connections and messages.

use super::address::{Address, SocketKind};
use super::inbox::{Inbox, Patience, Refusal, WITH_CREDENTIALS, WITH_STAMP};
use super::names;
use super::operations::Caller;
use super::queue::Bounds;
use super::rights::Rights;
use super::segment::Segment;
use super::state::{MAX_MESSAGES, Phase, Socket};
use crate::fs::io::ByteSource;
use crate::fs::lookup::{self, LastLink};
use crate::fs::node::NewNode;
use crate::fs::{FileKind, permission};
use alloc::sync::Arc;
use logic::credentials::Wanted;
use logic::errno::{Errno, SysResult};
use logic::socket::address::{AF_UNSPEC, UnixName, split_family};
use logic::socket::control::Credentials;

/// A message is shorter than the send buffer by this at least, as on Linux.
const BUFFER_REST: usize = 32;
/// How often a nonblocking call tries again to send to a full inbox that has room a moment later.
const TRIES: usize = 8;

impl Socket {
    fn set_name(&self, name: UnixName, hold: crate::fs::node::Hold) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.bound.is_some() {
            drop(state);
            drop(hold);
            return Err(Errno::EINVAL);
        }
        state.local = Address::Unix(name);
        state.bound = Some(hold);
        Ok(())
    }

    /// Binds the socket to a free name if it has none. A receiver that is to answer needs the name.
    /// Fails with `ENOSPC` if all such names are in use.
    fn bind_to_any(&self) -> Result<(), Errno> {
        if self.is_bound() {
            return Ok(());
        }
        let (name, hold) = names::take_any(self)?;
        // Another thread may have been faster.
        let _ = self.set_name(UnixName::Abstract(name), hold);
        Ok(())
    }

    /// Binds the socket to the name in `bytes`: a path, an abstract name, or any free abstract name
    /// if `bytes` has no name (`bind(2)`). For a path, creates the file of the socket.
    ///
    /// # Errors
    /// Fails with `EADDRINUSE` if the name is in use, and with `EINVAL` if the socket has a name or
    /// `bytes` is no address of this family. Fails with the errors of creating the file.
    pub(super) fn bind_unix(
        &self,
        bytes: &[u8],
        Caller { context, who }: Caller<'_>,
    ) -> Result<(), Errno> {
        match UnixName::parse(bytes)? {
            UnixName::Nameless => self.bind_to_any(),
            UnixName::Abstract(name) => {
                if self.is_bound() {
                    return Err(Errno::EINVAL);
                }
                let hold = names::take_abstract(self, &name)?;
                self.set_name(UnixName::Abstract(name), hold)
            }
            UnixName::Path(path) => {
                let found =
                    lookup::resolve(who, &context.root(), &context.cwd(), &path, LastLink::Entry)?;
                if found.node.is_some() {
                    return Err(Errno::EADDRINUSE);
                }
                if found.must_be_directory {
                    return Err(Errno::ENOENT);
                }
                permission::check_change(who, &*found.parent)?;
                if self.is_bound() {
                    return Err(Errno::EINVAL);
                }
                let name = found.new_name(Errno::EADDRINUSE)?;
                let mask = context.umask();
                let beginning = permission::beginning(who, &*found.parent, 0o777, mask, false);
                let node = found
                    .parent
                    .create(name, NewNode::Socket, beginning)
                    .map_err(|error| match error {
                        Errno::EEXIST => Errno::EADDRINUSE,
                        other => other,
                    })?;
                let hold = names::take_node(self, node);
                self.set_name(UnixName::Path(path), hold)
            }
        }
    }

    /// Returns the socket with the name `name`. Fails with `ECONNREFUSED` if there is none, with
    /// `EPROTOTYPE` if its type is another, with `EINVAL` for an empty name, and as a walk to a
    /// path. Fails with `EACCES` without the right to write to the socket's node.
    fn find(
        &self,
        name: &UnixName,
        Caller { context, who }: Caller<'_>,
    ) -> Result<Arc<Self>, Errno> {
        let found = match name {
            UnixName::Nameless => return Err(Errno::EINVAL),
            UnixName::Abstract(name) => names::find_abstract(self.kind(), name),
            UnixName::Path(path) => {
                let found =
                    lookup::resolve(who, &context.root(), &context.cwd(), path, LastLink::Follow)?;
                let node = found.existing()?;
                permission::check(who, &*node, Wanted::WRITE)?;
                if node.kind() != FileKind::Socket {
                    return Err(Errno::ECONNREFUSED);
                }
                names::find_node(&node)
            }
        };
        let found = found.ok_or(Errno::ECONNREFUSED)?;
        if found.kind() != self.kind() {
            return Err(Errno::EPROTOTYPE);
        }
        Ok(found)
    }

    /// Connects the socket to the one with the name in `bytes` (`connect(2)`). A socket that
    /// connects waits for room in the backlog as `patience` allows. For a datagram socket,
    /// `AF_UNSPEC` disconnects it.
    ///
    /// # Errors
    /// Fails with `ECONNREFUSED` if no socket has the name or listens there, and with `EPROTOTYPE`
    /// if that socket has another type. Fails with `EISCONN` if this socket is connected, with
    /// `EINVAL` if it listens, and with the errors of looking up a path. Otherwise fails as
    /// `connect(2)`.
    pub(super) fn connect_unix(
        &self,
        bytes: &[u8],
        caller: Caller<'_>,
        patience: Patience,
    ) -> Result<(), Errno> {
        if self.kind() == SocketKind::Datagram && split_family(bytes)?.0 == AF_UNSPEC {
            self.disconnect_messages();
            return Ok(());
        }
        let name = UnixName::parse(bytes)?;
        let other = self.find(&name, caller)?;
        if self.settings().pass_credentials.get() {
            self.bind_to_any()?;
        }
        if self.kind() == SocketKind::Datagram {
            return self.aim(&other);
        }
        let listener = other.state.lock().listener.clone();
        let listener = listener.ok_or(Errno::ECONNREFUSED)?;
        if other.inbox.look().shut {
            return Err(Errno::ECONNREFUSED);
        }
        match self.state.lock().phase {
            Phase::Idle => {}
            Phase::Listening => return Err(Errno::EINVAL),
            _ => return Err(Errno::EISCONN),
        }
        let server = Self::new(self.family(), self.kind());
        let local = other.local();
        server.state.lock().local = local.clone();
        // The server may still ask for credentials once it is accepted, so messages get them now.
        server.inbox.ask(WITH_CREDENTIALS, true);
        drop(other);
        self.connect_to(&listener, server, local, patience)?;
        self.set_reported();
        Ok(())
    }

    /// Connects this datagram socket to `other`: from now on this socket sends to `other` and
    /// receives from `other` alone. Fails with `EPERM` if `other` is connected to another socket.
    fn aim(&self, other: &Self) -> Result<(), Errno> {
        if !other.inbox.admits(self.inbox.id()) {
            return Err(Errno::EPERM);
        }
        let peer = other.inbox.clone();
        self.inbox.receive_only_from(Some(peer.id()));
        let who = self.peer_credentials();
        self.set_connected(peer, other.local(), who, true);
        Ok(())
    }

    /// Disconnects this datagram socket from its peer, so it receives from any socket again.
    pub(super) fn disconnect_messages(&self) {
        let mut state = self.state.lock();
        let old = state.peer.take();
        state.remote = None;
        state.phase = Phase::Idle;
        drop(state);
        drop(old);
        self.inbox.receive_only_from(None);
    }

    /// Makes the socket accept connections (`listen(2)`). At most `backlog` connections wait to be
    /// accepted.
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if sockets of this type do not connect. Fails with `EINVAL` if the
    /// socket has no name or is connected.
    pub(super) fn listen_unix(&self, backlog: usize) -> Result<(), Errno> {
        if !self.kind().connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        let phase = self.state.lock().phase;
        if !self.is_bound() || !matches!(phase, Phase::Idle | Phase::Listening) {
            return Err(Errno::EINVAL);
        }
        self.start_listening(backlog);
        Ok(())
    }

    /// Returns the inbox that a message goes to, and whether it is that of the connected peer. The
    /// message goes to the peer if `to` is `None` or the socket is no datagram socket. Fails with
    /// `ENOTCONN` if there is no peer, with `EINVAL` for a malformed address, and as
    /// [`Self::find`].
    fn receiver_of_message(
        &self,
        to: Option<(&[u8], Caller<'_>)>,
    ) -> Result<(Arc<Inbox>, bool), Errno> {
        if let Some((bytes, caller)) = to
            && self.kind() == SocketKind::Datagram
        {
            let name = UnixName::parse(bytes)?;
            return Ok((self.find(&name, caller)?.inbox.clone(), false));
        }
        let peer = self.state.lock().peer.clone();
        Ok((peer.ok_or(Errno::ENOTCONN)?, true))
    }

    /// Sends a message from a datagram socket, or over a connection that keeps boundaries. Returns
    /// the length of the message. Waits for room as `patience` allows.
    ///
    /// # Errors
    /// Fails as `sendmsg(2)`: among others with `ENOTCONN` without a receiver, with `EMSGSIZE` if
    /// the message is too long, with `EPIPE` if the socket cannot send any more, and with `EAGAIN`
    /// instead of waiting.
    pub(super) fn send_message(
        &self,
        from: &mut dyn ByteSource,
        to: Option<(&[u8], Caller<'_>)>,
        rights: Option<Rights>,
        credentials: Option<Credentials>,
        patience: Patience,
    ) -> SysResult {
        if self.settings().pass_credentials.get() {
            self.bind_to_any()?;
        }
        let length = from.left();
        let (inbox, connected) = self.receiver_of_message(to)?;
        if length > self.account.limit().saturating_sub(BUFFER_REST) {
            return Err(Errno::EMSGSIZE);
        }
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.cannot_send(&self.state.lock()) {
            return Err(Errno::EPIPE);
        }
        let charge = self.charge(length, patience)?;
        let source = self.local();
        let credentials = self.credentials_to(&inbox, credentials);
        let mut segment = Segment::take(from, length, source, credentials, charge, rights)?;
        if let Some(own) = Arc::get_mut(&mut segment) {
            own.stamp(inbox.asks(WITH_STAMP));
        }
        // A receiver that is connected to this socket takes everything that the account allows.
        let mutual = self.kind().connects() || inbox.receives_only_from(self.inbox.id());
        let bounds = Bounds {
            messages: (!mutual).then_some(MAX_MESSAGES),
            memory: None,
        };
        let mut tries = TRIES;
        loop {
            match inbox.push(segment, self.inbox.id(), bounds) {
                Ok(()) => return Ok(length),
                Err((Refusal::Full, back)) => {
                    segment = back;
                    let full = || inbox.is_full_for(&self.notifier, bounds);
                    if patience == Patience::None {
                        // `full` registers the socket for notification. Room that came before that
                        // is not notified.
                        if full() || tries == 0 {
                            return Err(Errno::EAGAIN);
                        }
                        tries -= 1;
                    } else {
                        patience
                            .wait(&self.notifier, || !full() || self.state.lock().shut_write)?;
                    }
                    if self.state.lock().shut_write {
                        return Err(Errno::EPIPE);
                    }
                }
                Err((Refusal::Closed, _)) if self.kind().connects() => return Err(Errno::EPIPE),
                Err((Refusal::Closed, _)) => {
                    if connected {
                        self.disconnect_messages();
                    }
                    return Err(Errno::ECONNREFUSED);
                }
                Err((Refusal::Shut, _)) => return Err(Errno::EPIPE),
                Err((Refusal::Stranger, _)) => return Err(Errno::EPERM),
                Err((Refusal::Memory, _)) => return Err(Errno::ENOBUFS),
            }
        }
    }
}
