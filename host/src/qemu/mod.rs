//! Running QEMU: its command line, its process, its QMP monitor, its virtual CPUs, and the guest's
//! RAM, which QEMU and `ebb` share.

mod balloon;
mod boot_files;
mod command;
mod monitor;
mod monitor_sender;
mod pins;
mod process;
mod ram;
mod ram_file;
mod sigbus;
mod vcpus;
mod vm;
mod window;

pub(crate) use balloon::{Balloon, BalloonError, BalloonStats};
pub(crate) use boot_files::BootFiles;
pub(crate) use monitor::{End, Monitor, MonitorError};
pub(crate) use monitor_sender::MonitorSender;
pub(crate) use process::{
    CpuTime, Ended, Handle, Qemu, SpawnError, cpu_time, overhead_bytes, overhead_pss,
};
pub(crate) use ram::{GuestAddress, GuestRam};
pub(crate) use ram_file::{Backing, RamMaker};
pub(crate) use vcpus::{Hold, StoppedBy, Vcpus, Wish};
pub(crate) use vm::{Spec, Vm, VmError};
pub(crate) use window::Window;
