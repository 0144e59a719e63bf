//! How a socket is at one moment, for who looks at all of them (`/proc/net`).

use super::address::{Address, Family, Protocol, SocketKind};
use super::state::{Phase, Socket};
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::Errno;

/// How far a socket is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is not connected, or not any more.
    Closed,
    /// It accepts connections.
    Listening,
    /// It waits for its turn at a listener.
    Connecting,
    /// It is connected.
    Connected,
    /// It is, and has stopped writing.
    WriteEnded,
    /// It is, and the other side has stopped writing.
    PeerEnded,
}

/// A socket at one moment.
#[derive(Debug)]
pub struct View {
    /// Its family.
    pub family: Family,
    /// What it carries.
    pub kind: SocketKind,
    /// Its protocol, if that has a number above 0.
    pub protocol: Option<Protocol>,
    /// Its name.
    pub local: Address,
    /// The other side's; an unbound one if there is none.
    pub remote: Address,
    /// It has a name that others can send to.
    pub bound: bool,
    /// How far it is.
    pub stage: Stage,
    /// What waits for the owner: bytes of a stream, memory of messages, connections at a listener.
    pub waiting: usize,
    /// Messages that found no room.
    pub drops: u32,
}

impl Socket {
    /// How it is now.
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

    /// The other sides of connections that wait to be accepted: no descriptor leads to them.
    ///
    /// # Errors
    /// `ENOMEM`.
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
        // Nothing is allocated under its lock: who has come since is not seen.
        let seen = backlog.established().take(room);
        all.extend(seen.map(|embryo| embryo.server.clone()));
        drop(backlog);
        Ok(all)
    }
}
