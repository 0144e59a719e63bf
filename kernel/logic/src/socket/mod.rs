//! The parts of sockets that need no hardware: formats of addresses and control messages, metadata
//! of packets, answers of netlink, and the backlog of a listener.

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
