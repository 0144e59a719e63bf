//! QEMU: what it is told, and the process that it is.

mod command;
mod process;

pub(crate) use command::{Accel, Board, Dialect, command_line};
pub(crate) use process::{CpuTime, Ended, Handle, Qemu, SpawnError, cpu_time, overhead_bytes};
