//! Files of `/proc/sys` that programs can read but not change, since the kernel has only one
//! behaviour.

use crate::fs::synthetic::Entry;
use core::fmt::Write;

/// The files of `/proc/sys` with values that are always the same.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::file("sys/kernel/arch", |text| writeln!(text, "x86_64")),
    // The number that stands for a user or group without a number of 16 bits. It cannot be changed.
    Entry::file("sys/kernel/overflowuid", |text| writeln!(text, "65534")),
    Entry::file("sys/kernel/overflowgid", |text| writeln!(text, "65534")),
    Entry::file("sys/fs/overflowuid", |text| writeln!(text, "65534")),
    Entry::file("sys/fs/overflowgid", |text| writeln!(text, "65534")),
    // Only programs with CAP_SYSLOG may read the kernel log.
    Entry::file("sys/kernel/dmesg_restrict", |text| writeln!(text, "1")),
    // A panic ends the VM at once.
    Entry::file("sys/kernel/panic", |text| writeln!(text, "-1")),
    Entry::file("sys/kernel/panic_on_oops", |text| writeln!(text, "1")),
    // No module can be loaded, and no other kernel.
    Entry::file("sys/kernel/modules_disabled", |text| writeln!(text, "1")),
    Entry::file("sys/kernel/kexec_load_disabled", |text| writeln!(text, "1")),
    Entry::file("sys/kernel/numa_balancing", |text| writeln!(text, "0")),
    // Programs with set-id bits leave no core file.
    Entry::file("sys/fs/suid_dumpable", |text| writeln!(text, "0")),
    Entry::file("sys/fs/protected_fifos", |text| writeln!(text, "0")),
    Entry::file("sys/fs/protected_regular", |text| writeln!(text, "0")),
    Entry::file("sys/vm/oom_kill_allocating_task", |text| {
        writeln!(text, "0")
    }),
    Entry::file("sys/vm/zone_reclaim_mode", |text| writeln!(text, "0")),
    Entry::file("sys/vm/legacy_va_layout", |text| writeln!(text, "0")),
    // The reclaim of dentries and inodes cannot be weighed against that of pages.
    Entry::file("sys/vm/vfs_cache_pressure", |text| writeln!(text, "100")),
    // Each round of writeback writes all dirty pages, also those that have just become dirty.
    Entry::file("sys/vm/dirty_expire_centisecs", |text| writeln!(text, "0")),
    // No program can create a namespace.
    Entry::file("sys/user/max_user_namespaces", |text| writeln!(text, "0")),
    Entry::file("sys/user/max_mnt_namespaces", |text| writeln!(text, "0")),
    Entry::file("sys/user/max_net_namespaces", |text| writeln!(text, "0")),
    Entry::file("sys/user/max_pid_namespaces", |text| writeln!(text, "0")),
    Entry::file("sys/user/max_ipc_namespaces", |text| writeln!(text, "0")),
    Entry::file("sys/user/max_uts_namespaces", |text| writeln!(text, "0")),
    Entry::file("sys/user/max_time_namespaces", |text| writeln!(text, "0")),
    // There are no controllers of control groups.
    Entry::file("cgroups", |text| {
        writeln!(text, "#subsys_name\thierarchy\tnum_cgroups\tenabled")
    }),
];
