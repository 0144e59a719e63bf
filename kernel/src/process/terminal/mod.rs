//! Terminals: pseudo-terminals, the one that the host has for the program, and who is controlled by them.
//!
//! What a terminal does with bytes stands in [`logic::tty`]. Here are its two sides as files ([`line`],
//! [`master`]), the calls on them ([`control`]), sessions and jobs ([`jobs`]), `/dev/pts` ([`devpts`])
//! and the terminal behind which the host is ([`console`]).

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
