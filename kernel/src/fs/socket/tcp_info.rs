//! The contents of `TCP_INFO`.

use super::state::Socket;
use super::view::Stage;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::socket::tcp_info::TcpInfo;

impl Stage {
    /// Returns Linux's number of this state of TCP.
    pub fn tcp_number(self) -> u8 {
        match self {
            Self::Connected => 1,
            Self::Connecting => 2,
            Self::WriteEnded => 5,
            Self::Closed => 7,
            Self::PeerEnded => 8,
            Self::Listening => 10,
        }
    }
}

impl Socket {
    /// Returns the `struct tcp_info` of this socket.
    pub fn tcp_info(&self) -> Vec<u8> {
        let stage = self.view().stage;
        let peer = self.state.lock().peer.clone();
        let info = TcpInfo {
            state: stage.tcp_number(),
            connected: peer.is_some(),
            sent: peer.as_ref().map_or(0, |peer| peer.received()),
            received: self.inbox.received(),
            held: self.held.pieces.lock().bytes,
            // Relaxed: an option orders nothing.
            most_rate: !self.settings().unpaced.load(Ordering::Relaxed),
        };
        info.to_bytes()
    }
}
