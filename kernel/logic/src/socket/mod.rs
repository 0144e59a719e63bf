//! What sockets need and no machine: addresses and control messages as programs write them, what
//! comes with a packet, what netlink answers, and the connections that wait at a listener.

pub mod address;
mod attribute;
pub mod backlog;
pub mod control;
pub mod icmp;
pub mod netlink;
pub mod options;
pub mod packet;
pub mod report;
mod routes;
pub mod tcp_info;
