//! Sockets: `AF_UNIX`, TCP, UDP and ICMP over the loopback interface, and netlink.
//!
//! ```text
//! Socket --sends--> Inbox of the peer: Segments --received by--> the peer
//!    |                        |
//! Account <--charge of each segment, until it is received
//! ```
//! Every socket has an [`inbox`]: a queue of segments. A sender puts a segment into the inbox of
//! the receiving socket. As on Linux, the sender is charged for the segment's memory until it is
//! received. A segment of UDP, ICMP or netlink counts only for all sockets together. A read of a
//! stream can take bytes of several segments; a datagram is one segment.
//!
//! TCP and UDP reach this machine alone, so there are no packets. A connection is a pair of sockets
//! that know each other's inbox, as with `AF_UNIX`. TCP adds ports, states and errors. A protocol
//! stack such as smoltcp would split, check, order, acknowledge and time data that cannot be lost
//! here. It would be polled under one lock, and would keep full-size buffers for each connection.
//! The inboxes allocate and free memory by the segment.
//!
//! A network beyond this machine would get a protocol stack beside this model, not below it.

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

/// Starts the kernel threads of sockets. `caller` returns the credentials of the calling process:
/// first with the real, then with the effective user. `is_admin` returns whether the caller may
/// change networks.
pub fn start(caller: [fn() -> Credentials; 2], is_admin: fn() -> bool) {
    state::set_admin(is_admin);
    collect::start(caller);
    hold::start();
}
