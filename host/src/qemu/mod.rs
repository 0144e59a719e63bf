//! QEMU: what it is told, the process that it is, its monitor, the RAM that it shares with us.

mod balloon;
mod boot_files;
mod command;
mod monitor;
mod process;
mod ram;
mod vm;
mod window;

pub(crate) use balloon::{Balloon, BalloonError, Told};
pub(crate) use boot_files::BootFiles;
pub(crate) use monitor::{End, Inquiries, Monitor, MonitorError};
pub(crate) use process::{
    CpuTime, Ended, Handle, Qemu, SpawnError, cpu_time, overhead_bytes, overhead_pss,
};
pub(crate) use ram::{GuestAddress, GuestRam};
pub(crate) use vm::{Spec, Vm, VmError};
pub(crate) use window::Window;
