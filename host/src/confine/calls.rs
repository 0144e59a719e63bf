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

/// The calls that QEMU may make, until its own `-sandbox` takes some away: memory, threads, waiting,
/// the descriptors that it was handed, and files by a path, which Landlock restricts further. No call
/// reaches another process, makes a socket or a pair of sockets, or changes modes, owners or times of
/// a file.
const QEMUS: &[i64] = &[
    // Starting.
    libc::SYS_execve,
    libc::SYS_arch_prctl,
    libc::SYS_set_tid_address,
    libc::SYS_seccomp,
    libc::SYS_getrlimit,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_get_mempolicy,
    libc::SYS_membarrier,
    // Threads.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals of its own.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_signalfd,
    libc::SYS_signalfd4,
    // Time and waiting.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_create,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    // Descriptors. All sockets are connected streams, so no message has another address.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fadvise64,
    libc::SYS_flock,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Files by a path.
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_umask,
    // Questions about itself and the machine.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgrp,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
];

/// The commands of `fcntl` that QEMU and a reader may give: none that has a signal sent to a process.
const FCNTL_COMMANDS: &[i32] = &[
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
    libc::F_GETPIPE_SZ,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// The commands of `prctl` that QEMU may give: names of threads and memory, huge pages, and its own
/// filter; not the signal that ends it with `ebb`.
const PRCTL_COMMANDS: &[i32] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    libc::PR_SET_THP_DISABLE,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_SECCOMP,
    libc::PR_SET_SECCOMP,
    libc::PR_CAPBSET_READ,
];

/// The commands of `ioctl` that QEMU may give beside KVM's: whether a file is a terminal, blocks, and how
/// much there is to read.
const IOCTL_COMMANDS: &[u64] = &[libc::TCGETS, libc::FIONBIO, libc::FIONREAD, libc::FIOCLEX];

/// The type of all of KVM's commands, and the part of a command that has it.
const KVM_COMMANDS: (u64, u64) = (0xff00, 0xae00);

/// The placeholder in a filter for the number of the process that the filter is put on.
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
    rules.insert(libc::SYS_fcntl, fcntl_rules()?);
    // A panic ends the process by a signal to itself.
    rules.insert(libc::SYS_tgkill, vec![own()?]);
    let mut program = allowing(rules)?;
    put_in_own_process(&mut program);
    apply(&program)
}

/// The filters of a QEMU, in the order in which [`apply`] puts them on in the process that becomes QEMU.
///
/// # Errors
/// If they cannot be compiled.
pub(super) fn of_qemu() -> io::Result<[BpfProgram; 2]> {
    let mut rules: Rules = QEMUS.iter().map(|call| (*call, vec![])).collect();
    rules.insert(libc::SYS_fcntl, fcntl_rules()?);
    let equal = |argument, value| rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    // Its threads wake each other by signals.
    rules.insert(libc::SYS_tgkill, vec![own()?]);
    // New threads, not new processes.
    let threads = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let masked = SeccompCmpOp::MaskedEq(threads);
    let thread = rule(0, SeccompCmpArgLen::Qword, masked, threads)?;
    rules.insert(libc::SYS_clone, vec![thread]);
    let commands = PRCTL_COMMANDS.iter();
    let commands: io::Result<_> = commands
        .map(|command| equal(0, u64::from(command.unsigned_abs())))
        .collect();
    rules.insert(libc::SYS_prctl, commands?);
    // Limits of its own: number 0 is the calling process.
    rules.insert(libc::SYS_prlimit64, vec![equal(0, 0)?, own()?]);
    let (mask, kind) = KVM_COMMANDS;
    let masked = SeccompCmpOp::MaskedEq(mask);
    let mut commands = vec![rule(1, SeccompCmpArgLen::Dword, masked, kind)?];
    for command in IOCTL_COMMANDS {
        commands.push(equal(1, *command)?);
    }
    rules.insert(libc::SYS_ioctl, commands);
    // The flags of this call are in memory, where no filter sees them. Without it the C library takes
    // the older one.
    let newer = [(libc::SYS_clone3, vec![])].into();
    let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    Ok([
        allowing(rules)?,
        compiled(newer, SeccompAction::Allow, absent)?,
    ])
}

/// The harmless commands of `fcntl`. Flags of an open file may be set but the one by which it sends signals.
fn fcntl_rules() -> io::Result<Vec<SeccompRule>> {
    let command = |command: i32| {
        let value = u64::from(command.unsigned_abs());
        SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
            .map_err(io::Error::other)
    };
    let of = |conditions| SeccompRule::new(conditions).map_err(io::Error::other);
    let rules = FCNTL_COMMANDS.iter().map(|one| of(vec![command(*one)?]));
    let mut rules = rules.collect::<io::Result<Vec<_>>>()?;
    let signals = u64::from(libc::O_ASYNC.unsigned_abs());
    let masked = SeccompCmpOp::MaskedEq(signals);
    let silent = SeccompCondition::new(2, SeccompCmpArgLen::Dword, masked, 0);
    let silent = silent.map_err(io::Error::other)?;
    rules.push(of(vec![command(libc::F_SETFL)?, silent])?);
    Ok(rules)
}

/// A filter that allows these calls; others fail with `EPERM`.
fn allowing(rules: Rules) -> io::Result<BpfProgram> {
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    compiled(rules, refuse, SeccompAction::Allow)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A rule that holds if the first argument is the number of the own process.
fn own() -> io::Result<SeccompRule> {
    let equal = SeccompCmpOp::Eq;
    rule(0, SeccompCmpArgLen::Dword, equal, OWN_PROCESS.into())
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
    // SAFETY: the arguments are numbers. The callers are new processes that use no descriptor in this
    // range any more.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
