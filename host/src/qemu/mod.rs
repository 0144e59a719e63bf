//! QEMU: what it is told, and the process that it is.

mod command;
mod process;

pub(crate) use command::{Accel, Board, command_line};
pub(crate) use process::{Ended, Handle, Qemu, SpawnError, overhead_bytes};
