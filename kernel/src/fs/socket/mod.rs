//! Sockets: `AF_UNIX`, TCP and UDP over the loopback interface, and netlink, which tells of it.
//!
//! ```text
//! Socket --sends--> Inbox of the peer: Segments --received by--> the peer
//!    |                        |
//! Account <--charge of each segment, until it is received
//! ```
//! Every socket has an [`inbox`]: a queue of segments. Who sends puts a segment into the inbox of
//! the socket that is to receive it, and is charged for its memory until it is received, as on
//! Linux. A stream reads across segments, a datagram is one.
//!
//! TCP and UDP reach this machine alone, so they have no packets: a connection is a pair of sockets
//! that know each other's inbox, as with `AF_UNIX`, and what is TCP's is its ports, its states and
//! its errors. A stack of protocols (smoltcp is the one we would take) would split, check, order,
//! acknowledge and time what cannot be lost here, would need its polls driven under one lock, and
//! would keep its buffers at full size for each connection, while these take and give back memory
//! by the segment.

mod account;
mod address;
mod asking;
mod collect;
mod counters;
mod disconnect;
mod errors;
mod groups;
mod held;
mod hold;
mod icmp;
mod inbox;
mod inet;
mod interface;
mod names;
mod netlink;
mod operations;
mod payload;
mod ports;
mod problems;
mod queue;
mod rights;
mod segment;
mod settings;
mod state;
mod stream;
mod tcp_info;
mod udp;
mod unix;
mod view;

pub use address::{Address, Family, Protocol, SocketKind};
pub use counters::{ACTIVE_OPENS, ATTEMPT_FAILS, UDP_IN, UDP_NO_PORT, UDP_NO_ROOM, UDP_OUT};
pub use groups::MOST_GROUPS;
pub use icmp::PING_GROUPS;
pub use inbox::Got;
pub use inet::{DEFAULT_HOPS, UNPRIVILEGED};
use logic::socket::control::Credentials;
pub use operations::{Caller, Incoming, MAX_BACKLOG, Outgoing};
pub use ports::EPHEMERAL;
pub use rights::on_their_way;
pub use settings::{KEEP_ALIVE, Settings, Stamps, Timeout};
pub use state::{DEFAULT_BUFFER, MAX_MESSAGES, Socket};
pub use view::{Stage, View};

/// Starts the threads of sockets. `caller` says who calls, as the real user and as whom it acts, and
/// `is_admin` whether that is somebody who may change networks.
pub fn start(caller: [fn() -> Credentials; 2], is_admin: fn() -> bool) {
    state::set_admin(is_admin);
    collect::start(caller);
    hold::start();
}
