//! What the host, the guest kernel and the first process of Linux guests say to each other, each
//! thing once.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`boot`]: words of the kernel's command line, files of the archive | host | both kinds of guests |
//! | [`port`]: the ports and their order | host | both kinds of guests |
//! | [`request`]: lines on the control port | host | both kinds of guests |
//! | [`report`]: lines on the control port | `ebb-init` | host |
//! | [`out`]: files on the port for them | `ebb-init` | host |
//! | [`GiveBack`]: how memory goes back | both | both |
//! | [`Reclaim`]: what a guest does when it is asked for memory | host | `ebb-kernel` |
//! | [`root`]: a tree of the host's files | `ebb-kernel` asks | host answers |
//! | [`volume`]: folders of the host's that the guest writes | `ebb-kernel` asks | host answers |
//! | [`terminal`]: the size of the program's terminal | host | `ebb-kernel` |
//! | [`user`]: who the program runs as | host | both kinds of guests |
//! | [`header`]: a page of counters in the guest's memory | `ebb-kernel` | host |
//!
//! Whoever reads takes it for an allegation: it comes from the other side of a machine's border.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod boot;
mod give_back;
pub mod header;
pub mod out;
pub mod port;
mod reclaim;
pub mod report;
pub mod request;
pub mod root;
pub mod terminal;
pub mod user;
pub mod volume;

pub use give_back::GiveBack;
pub use reclaim::Reclaim;
