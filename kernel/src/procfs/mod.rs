//! `/proc` and `/sys`: the state of the kernel, and its knobs.

mod hugepages;
mod proc;
mod sys;

use crate::fs;
use machine::arch::BootInfo;

/// Mounts `/proc` and `/sys`. `boot` has the kernel's command line. Panics if a mount fails.
pub fn mount(boot: &'static BootInfo) {
    let root = fs::root();
    let mount = fs::mounts::mount_permanent;
    let mounted = mount("proc", &root, b"proc", proc::build(&root, boot), None)
        .and_then(|()| mount("sysfs", &root, b"sys", sys::build(&root), None));
    if let Err(error) = mounted {
        panic!("/proc and /sys cannot be mounted: {error}");
    }
}

pub use proc::{apply_boot_line, is_of_process, process_of};

/// Does the work that needs all CPUs and the whole tree: adds the CPUs of `/sys`, and creates the
/// pools of huge pages that the command line asks for.
pub fn finish() {
    sys::add_cpus();
    hugepages::apply_boot_line(proc::boot_line());
}
