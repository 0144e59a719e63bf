//! The formats of all messages and shared data between the host, the guest kernel and the first
//! process of Linux guests.
//!
//! | module                                                | from         | to                   |
//! |-------------------------------------------------------|--------------|----------------------|
//! | [`boot`]: kernel parameters, files of the initramfs   | host         | both kinds of guests |
//! | [`port`]: the virtio console ports and their order    | host         | both kinds of guests |
//! | [`request`]: lines on the control port                | host         | both kinds of guests |
//! | [`report`]: lines on the control port                 | `ebb-init`   | host                 |
//! | [`out`]: the program's files, on a port of their own  | `ebb-init`   | host                 |
//! | [`GiveBack`]: how free memory goes back to the host   | both         | both                 |
//! | [`Reclaim`]: what a guest does when asked for memory  | host         | `ebb-kernel`         |
//! | [`root`]: a tree of the host's files                  | guest asks   | host answers         |
//! | [`volume`]: folders of the host that the guest writes | guest asks   | host answers         |
//! | [`terminal`]: the size of the program's terminal      | host         | both kinds of guests |
//! | [`user`]: the user and groups of the program          | host         | both kinds of guests |
//! | [`header`]: a page of counters in the guest's memory  | `ebb-kernel` | host                 |
//!
//! A reader must not trust the data: it comes from the other side of the virtual machine's border.

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
