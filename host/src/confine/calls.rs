//! Which system calls a reader, and QEMU, may make.

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::io;

/// The calls of a reader: memory, its socket, and files that it was handed.
const READERS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fcntl,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The calls that QEMU is refused beside those that its own `-sandbox` refuses: everything that
/// reaches other processes, opens a connection, changes namespaces or mounts, or loads code into the
/// kernel.
const REFUSED: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    // Connections: a socket in the file system is reached from every network namespace.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Namespaces, mounts, the root.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // The kernel's rarer doors.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
];

/// Stands in a filter for the number of the process that it is put on.
const OWN_PROCESS: u32 = 0x7eb_b0de;

/// Confines the calling thread, and those that it starts, to [`READERS`]; others fail with `EPERM`.
///
/// # Errors
/// If the kernel has no seccomp.
pub(super) fn allow_reading() -> io::Result<()> {
    let mut rules: Rules = READERS.iter().map(|call| (*call, vec![])).collect();
    // Memory that holds no code.
    let executable = SeccompCmpOp::MaskedEq(u64::from(libc::PROT_EXEC.unsigned_abs()));
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let plain = rule(2, SeccompCmpArgLen::Qword, executable.clone(), 0)?;
        rules.insert(call, vec![plain]);
    }
    // A panic ends the process by a signal to itself.
    rules.insert(libc::SYS_tgkill, vec![own(SeccompCmpOp::Eq)?]);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let mut program = compiled(rules, refuse, SeccompAction::Allow)?;
    put_in_own_process(&mut program);
    apply(&program)
}

/// The filter of a QEMU. It is put on by [`apply`] in the process that becomes QEMU.
///
/// # Errors
/// If it cannot be compiled.
pub(super) fn of_qemu() -> io::Result<BpfProgram> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, vec![])).collect();
    // Its threads are woken by signals.
    rules.insert(libc::SYS_tgkill, vec![own(SeccompCmpOp::Ne)?]);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    compiled(rules, SeccompAction::Allow, refuse)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A rule that holds if the first argument compares so with the number of the own process.
fn own(operator: SeccompCmpOp) -> io::Result<SeccompRule> {
    rule(0, SeccompCmpArgLen::Dword, operator, OWN_PROCESS.into())
}

fn rule(
    index: u8,
    len: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> io::Result<SeccompRule> {
    let condition = SeccompCondition::new(index, len, operator, value).map_err(io::Error::other)?;
    SeccompRule::new(vec![condition]).map_err(io::Error::other)
}

fn compiled(rules: Rules, others: SeccompAction, listed: SeccompAction) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, others, listed, arch).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

/// Writes the number of this process where a filter compares with it. Allocates nothing.
pub(super) fn put_in_own_process(program: &mut [sock_filter]) {
    let pid = rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs();
    for instruction in program {
        if instruction.k == OWN_PROCESS {
            instruction.k = pid;
        }
    }
}

/// Puts a filter on the calling thread. Allocates nothing.
///
/// # Errors
/// If the kernel has no seccomp, or the thread may still gain privileges.
pub(super) fn apply(program: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let filter = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: `filter` describes `program`, whose instructions have the kernel's layout; the kernel
    // copies them and writes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            std::ptr::from_ref(&filter),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Closes the descriptors from `first` to `last`, or marks them to be closed by `exec`, by `flags`.
///
/// # Errors
/// `ENOSYS` or `EINVAL` of kernels before 5.11.
pub(super) fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    // SAFETY: numbers alone; what is closed is used no more by the callers, which are new processes.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
