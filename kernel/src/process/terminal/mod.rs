//! Terminals: pseudo-terminals, the terminal that the host provides for the program, sessions and
//! jobs.
//!
//! [`logic::tty`] processes a terminal's bytes. Here are a terminal's two sides as files ([`line`],
//! [`master`]), their ioctls ([`control`]), sessions and jobs ([`jobs`]), `/dev/pts` ([`devpts`]),
//! and the host's terminal ([`console`]).

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
