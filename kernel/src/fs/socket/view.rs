//! Snapshots of sockets, for readers of all sockets (`/proc/net`).

use super::address::{Address, Family, Protocol, SocketKind};
use super::state::{Phase, Socket};
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::Errno;

/// The state of a socket's connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not connected, or not any more.
    Closed,
    /// Accepts connections.
    Listening,
    /// Waits in a listener's full backlog.
    Connecting,
    /// Connected.
    Connected,
    /// Connected, and has stopped writing.
    WriteEnded,
    /// Connected, and the other side has stopped writing.
    PeerEnded,
}

/// A socket at one moment.
#[derive(Debug)]
pub struct View {
    /// The address family of the socket.
    pub family: Family,
    /// The type of the socket.
    pub kind: SocketKind,
    /// The protocol of the socket. `None` if Linux's number of it is 0.
    pub protocol: Option<Protocol>,
    /// The socket's own address, or an unbound one if it has none.
    pub local: Address,
    /// The address of the other side, or an unbound one if there is none.
    pub remote: Address,
    /// Whether the socket has an address that others can send to.
    pub bound: bool,
    /// The state of its connection.
    pub stage: Stage,
    /// The amount that waits to be received: bytes of a stream, bytes of memory of messages, or for
    /// a listener the number of connections to accept.
    pub waiting: usize,
    /// The number of messages that were dropped because the inbox was full.
    pub drops: u32,
}

impl Socket {
    /// Returns the current state of the socket.
    pub fn view(&self) -> View {
        let state = self.state.lock();
        let look = self.inbox.look();
        let stage = match state.phase {
            Phase::Idle | Phase::Refused => Stage::Closed,
            Phase::Connecting => Stage::Connecting,
            Phase::Listening => Stage::Listening,
            Phase::Connected { .. } => match (state.shut_write, look.peer_ended) {
                _ if look.reset => Stage::Closed,
                (false, false) => Stage::Connected,
                (true, false) => Stage::WriteEnded,
                (false, true) => Stage::PeerEnded,
                (true, true) => Stage::Closed,
            },
        };
        let unbound = || Address::unbound(self.family());
        let (local, bound) = (state.local.clone(), state.bound.is_some());
        let remote = state.remote.clone().unwrap_or_else(unbound);
        let listener = state.listener.clone();
        drop(state);
        let waiting = match listener {
            Some(listener) => listener.backlog.lock().established().count(),
            None if self.kind() == SocketKind::Stream => self.waiting().0,
            None => self.inbox.memory(),
        };
        View {
            family: self.family(),
            kind: self.kind(),
            protocol: self.protocol(),
            local,
            remote,
            bound,
            stage,
            waiting,
            drops: self.drops(),
        }
    }

    /// Returns the server sides of connections that wait to be accepted. No descriptor leads to
    /// them.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn unaccepted(&self) -> Result<Vec<Arc<Self>>, Errno> {
        let mut all = Vec::new();
        let listener = self.state.lock().listener.clone();
        let Some(listener) = listener else {
            return Ok(all);
        };
        let waiting = listener.backlog.lock().len();
        all.try_reserve_exact(waiting).map_err(|_| Errno::ENOMEM)?;
        let room = all.capacity();
        let backlog = listener.backlog.lock();
        // No allocation is made under the backlog's lock, so newer connections are left out.
        let seen = backlog.established().take(room);
        all.extend(seen.map(|embryo| embryo.server.clone()));
        drop(backlog);
        Ok(all)
    }
}
