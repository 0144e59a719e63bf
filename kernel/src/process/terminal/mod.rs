//! Terminals: pseudo-terminals, the terminal that the host provides for the program, sessions and
//! jobs.
//!
//! [`logic::tty`] processes a terminal's bytes. Here are a terminal's two sides as files ([`line`],
//! [`master`]), their ioctls ([`control`]), sessions and jobs ([`jobs`]), `/dev/pts` ([`devpts`]),
//! and the host's terminal ([`console`]).
//!
//! Terminals belong to `process`, because they send signals and belong to sessions. `/dev` opens
//! them by a function that it is given.
//!
//! A terminal's lock is a spin lock. One hold processes at most 256 typed bytes, and other tasks
//! run between the pieces of a long write. A writer has the terminal for itself until its call
//! ends, so lines stay whole.

mod console;
mod control;
mod device;
mod devpts;
mod jobs;
mod line;
mod master;

pub use console::{open_for_program, start};
pub use device::Terminal;
pub use devpts::mount;
pub(crate) use jobs::{end_of_leader, own_orphans, tell_orphans};
pub use jobs::{hang_up_own, numbers};
