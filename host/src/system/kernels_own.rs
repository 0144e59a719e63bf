//! Pseudo file systems, in which the host's kernel shows its own state.

use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Magic numbers of pseudo file systems. Their files show the host's processes and devices.
const KERNELS_OWN: [u64; 19] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x1cd1,      // devpts
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0x6265_6570, // configfs
    0xf97c_ff8c, // selinux
    0x6e73_6673, // nsfs
    0x4249_4e4d, // binfmt_misc
    0x6573_5543, // fusectl
    0x1980_0202, // mqueue
    0x5a3c_69f0, // apparmor
    0x0765_5821, // resctrl
];

/// Checks that `file` is on no pseudo file system in which the kernel shows its own state, such as
/// proc, sysfs or cgroup2.
///
/// # Errors
/// `EACCES` if `file` is on one; the errors of fstatfs(2).
pub(crate) fn refuse_kernels_own(file: &OwnedFd) -> Result<(), Errno> {
    let kind = rustix::fs::fstatfs(file)?.f_type.cast_unsigned();
    if KERNELS_OWN.contains(&kind) {
        Err(Errno::ACCESS)
    } else {
        Ok(())
    }
}
