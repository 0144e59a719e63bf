//! Ending a TCP connection while its socket stays in use (`connect` with `AF_UNSPEC`).

use super::address::Address;
use super::ports::PortUse;
use super::state::{Phase, Socket};
use crate::fs::owner::Band;
use logic::errno::Errno;
use logic::socket::address::Endpoint;

impl Socket {
    /// Ends a connection of TCP, or a listener, so that the socket can be used again. The other
    /// side finds the connection reset.
    pub(super) fn disconnect_stream(&self) {
        let mut state = self.state.lock();
        let (listener, peer) = (state.listener.take(), state.peer.take());
        let waits_at = state.waits_at.take();
        let was_connected = matches!(state.phase, Phase::Connected { .. });
        let was_open = was_connected || state.phase == Phase::Connecting;
        if state.phase == Phase::Listening
            && let Some(bound) = &state.bound
            && let Some(port) = bound.downcast_ref::<PortUse>()
        {
            port.set_listening(false);
        }
        state.phase = Phase::Idle;
        state.remote = None;
        state.shut_write = false;
        let bound = if state.chose_port {
            None
        } else {
            state.bound.take()
        };
        let local = state.local.endpoint();
        let unbound = Address::unbound(self.family());
        state.local = match (local, unbound.endpoint()) {
            (Some(local), Some(any)) => Address::Inet(Endpoint {
                ip: if state.chose_address {
                    local.ip
                } else {
                    any.ip
                },
                // As on Linux, the address keeps the port, even if the socket does not hold it any
                // more.
                port: local.port,
            }),
            _ => unbound,
        };
        drop(state);
        if let Some(listener) = listener {
            Self::stop_listening(&listener);
        }
        if let Some(listener) = waits_at.and_then(|listener| listener.upgrade()) {
            Self::give_turn_up(&listener, self.weak().as_ptr());
        }
        let lost = self.inbox.renew(was_open.then_some(Errno::ECONNRESET));
        drop(lost);
        if let Some(peer) = peer.filter(|_| was_connected) {
            peer.reset(Errno::ECONNRESET, Band::Error);
        }
        drop(bound);
        // No peer is left, so this drops the data that was held back.
        self.release_held();
    }
}
