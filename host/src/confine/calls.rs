//! The system calls that a reader and QEMU may make, as seccomp filters.

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The system calls of a reader: memory, its socket, and files that it has received.
const READERS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
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

/// The system calls of QEMU that need no check of arguments: memory, threads, waiting, inherited
/// descriptors, and files by a path, which Landlock restricts further.
///
/// No call reaches another process, creates a socket or raises a socket's buffer limits. No call
/// changes the size, mode, owner or times of a file, because the guest's RAM cannot be sealed on a
/// tmpfs. No call locks a file or changes priorities. No call installs another filter, because
/// thousands of filters in one process can stop the kernel that has to free them.
const QEMUS: &[i64] = &[
    // Start.
    libc::SYS_execve,
    libc::SYS_arch_prctl,
    libc::SYS_set_tid_address,
    libc::SYS_getrlimit,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
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
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals of the own process.
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
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_times,
    libc::SYS_getrusage,
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
    // Descriptors. All sockets are connected streams, so no message can have another address.
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
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fadvise64,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Files by a path.
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
    // Information about the process and the machine.
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
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
];

/// The fcntl(2) commands that QEMU and a reader may use. None makes the kernel send a signal to a
/// process, and none locks. All anonymous files of a host share one list of locks, and every
/// process that closes such a file searches it.
const FCNTL_COMMANDS: &[i32] = &[
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_GETPIPE_SZ,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// The prctl(2) commands that QEMU may use: names of threads and memory, and huge pages. The
/// command that clears the death signal is missing.
const PRCTL_COMMANDS: &[i32] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    libc::PR_SET_THP_DISABLE,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_DUMPABLE,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_SECCOMP,
    libc::PR_CAPBSET_READ,
];

/// The ioctl(2) commands that QEMU may use besides those of KVM: terminal test, blocking mode,
/// number of readable bytes, close-on-exec.
const IOCTL_COMMANDS: &[u64] = &[libc::TCGETS, libc::FIONBIO, libc::FIONREAD, libc::FIOCLEX];

/// The mask for the type in an ioctl(2) command, and KVM's type.
const KVM_COMMANDS: (u64, u64) = (0xff00, 0xae00);

/// The calls whose first argument is a clock. A negative clock number is the CPU time of another
/// process or thread.
const CLOCK_CALLS: &[i64] = &[
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_timer_create,
];
/// The sign bit of a clock number.
const NEGATIVE: u64 = 1 << 31;

/// The clone(2) flags that C libraries use for a thread.
const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID;
/// A flag that some libraries add, and the kernel ignores.
const DETACHED: i32 = libc::CLONE_DETACHED;

/// A placeholder in a filter for the number of the process that the filter is applied to.
const OWN_PROCESS: u32 = 0x7eb_b0de;

/// Restricts the calling thread, and the threads that it starts, to the system calls of a reader:
/// memory, its socket, files that it has received, and a few calls whose arguments are checked.
/// Other calls fail with `EPERM`. This cannot be undone.
///
/// # Errors
/// If the kernel has no seccomp, or the thread may still gain privileges.
pub(super) fn allow_reading() -> io::Result<()> {
    let mut rules: Rules = READERS.iter().map(|call| (*call, vec![])).collect();
    rules.insert(libc::SYS_clock_gettime, vec![own_clock()?]);
    // Memory must not be executable.
    let code = unset(2, libc::PROT_EXEC)?;
    rules.insert(
        libc::SYS_mmap,
        vec![all_of(vec![code.clone(), unset(3, libc::MAP_GROWSDOWN)?])?],
    );
    let code = [code, unset(2, GROWING)?];
    rules.insert(libc::SYS_mprotect, vec![all_of(code.to_vec())?]);
    rules.insert(libc::SYS_fcntl, fcntl_rules()?);
    // A panic ends the process by a signal to itself.
    rules.insert(libc::SYS_tgkill, vec![own()?]);
    let mut program = allowing(rules)?;
    put_in_own_process(&mut program);
    apply(&program)
}

/// The effect of QEMU's advice to use huge pages (`MADV_HUGEPAGE`). QEMU gives it for the guest's
/// RAM, for the buffer of its translator, and for other memory that it uses only in part. If the
/// advice fails, QEMU continues.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum HugePageAdvice {
    /// The advice is allowed for a range of exactly this number of bytes, which is the guest's RAM.
    /// Without it, the host neither compacts memory to get a huge page there nor collapses base
    /// pages later.
    HeededFor(u64),
    /// The advice fails.
    Refused,
}

/// Returns the seccomp filters of a QEMU, in the order in which [`apply`] must install them. They
/// contain a placeholder that [`put_in_own_process`] must replace before. `advice` says whether
/// `MADV_HUGEPAGE` is allowed.
///
/// # Errors
/// If the filters cannot be compiled.
pub(super) fn of_qemu(advice: HugePageAdvice) -> io::Result<[BpfProgram; 2]> {
    let mut rules: Rules = QEMUS.iter().map(|call| (*call, vec![])).collect();
    let huge = u64::from(libc::MADV_HUGEPAGE.unsigned_abs());
    let mut advised = vec![rule(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, huge)?];
    if let HugePageAdvice::HeededFor(bytes) = advice {
        advised.push(rule(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, bytes)?);
    }
    rules.insert(libc::SYS_madvise, advised);
    rules.insert(libc::SYS_fcntl, fcntl_rules()?);
    for call in CLOCK_CALLS {
        rules.insert(*call, vec![own_clock()?]);
    }
    rules.insert(
        libc::SYS_mmap,
        vec![all_of(vec![unset(3, libc::MAP_GROWSDOWN)?])?],
    );
    rules.insert(libc::SYS_mprotect, vec![all_of(vec![unset(2, GROWING)?])?]);
    let equal = |argument, value| rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    // The threads of QEMU wake each other by signals.
    rules.insert(libc::SYS_tgkill, vec![own()?]);
    // Memory returns to the host by punched holes, which keep the file's size.
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let hole = equal(1, u64::from(hole.unsigned_abs()))?;
    rules.insert(libc::SYS_fallocate, vec![hole]);
    let cutting = u64::from(libc::O_TRUNC.unsigned_abs());
    for (call, flags) in [(libc::SYS_open, 1), (libc::SYS_openat, 2)] {
        let masked = SeccompCmpOp::MaskedEq(cutting);
        let whole = rule(flags, SeccompCmpArgLen::Dword, masked, 0)?;
        rules.insert(call, vec![whole]);
    }
    // New threads are allowed. New processes, and threads with their own descriptors, are not.
    let masked = SeccompCmpOp::MaskedEq(!u64::from(DETACHED.unsigned_abs()));
    let thread = u64::from(THREAD.unsigned_abs());
    let thread = rule(0, SeccompCmpArgLen::Qword, masked, thread)?;
    rules.insert(libc::SYS_clone, vec![thread]);
    let commands = PRCTL_COMMANDS.iter();
    let commands: io::Result<_> = commands
        .map(|command| equal(0, u64::from(command.unsigned_abs())))
        .collect();
    rules.insert(libc::SYS_prctl, commands?);
    // The CPUs and limits of QEMU itself. Number 0 is the calling thread or process.
    rules.insert(libc::SYS_sched_getaffinity, vec![equal(0, 0)?]);
    rules.insert(libc::SYS_prlimit64, vec![equal(0, 0)?, own()?]);
    let (mask, kind) = KVM_COMMANDS;
    let masked = SeccompCmpOp::MaskedEq(mask);
    let mut commands = vec![rule(1, SeccompCmpArgLen::Dword, masked, kind)?];
    for command in IOCTL_COMMANDS {
        commands.push(equal(1, *command)?);
    }
    rules.insert(libc::SYS_ioctl, commands);
    // The flags of these calls are in memory, which a filter cannot read. With `ENOSYS`, the C
    // library uses the older calls.
    let newer = [(libc::SYS_clone3, vec![]), (libc::SYS_openat2, vec![])].into();
    let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    // This list comes last, because it forbids the installation of further filters.
    Ok([
        compiled(newer, SeccompAction::Allow, absent)?,
        allowing(rules)?,
    ])
}

/// Protection flags that let memory grow by faults, past the limit of private memory.
const GROWING: i32 = libc::PROT_GROWSDOWN | libc::PROT_GROWSUP;

/// Returns the rule that a clock does not belong to another process.
fn own_clock() -> io::Result<SeccompRule> {
    let positive = SeccompCmpOp::MaskedEq(NEGATIVE);
    rule(0, SeccompCmpArgLen::Dword, positive, 0)
}

/// Returns the condition that no bit of `bits` is set in the argument `index`.
fn unset(index: u8, bits: i32) -> io::Result<SeccompCondition> {
    let masked = SeccompCmpOp::MaskedEq(u64::from(bits.unsigned_abs()));
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, masked, 0).map_err(io::Error::other)
}

/// Returns the rule that all of `conditions` hold.
fn all_of(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other)
}

/// Returns the rules for fcntl(2): the harmless commands, and `F_SETFL` without `O_ASYNC`, the flag
/// that makes the kernel send signals.
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

/// Returns a filter that allows the calls in `rules`. Other calls fail with `EPERM`. Fails if the
/// filter cannot be compiled.
fn allowing(rules: Rules) -> io::Result<BpfProgram> {
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    compiled(rules, refuse, SeccompAction::Allow)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the rule that the first argument is the number of the own process.
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

/// Replaces the placeholder in the filter `program` by the number of this process, so that its
/// threads may signal each other only. Allocates nothing, for use between `fork` and `exec`.
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

/// Installs the seccomp filter `program` for the calling thread and the threads that it starts.
/// This cannot be undone. Allocates nothing, for use between `fork` and `exec`.
///
/// # Errors
/// If the kernel has no seccomp or refuses the filter, or the thread may still gain privileges.
pub(super) fn apply(program: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let filter = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: `filter` describes `program`, whose instructions have the kernel's layout. The kernel
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

/// Has the kernel refuse descriptors that are sent to `socket`; the sender then gets `EPERM`.
/// Otherwise, descriptors that wait in a socket would count against the limit of the user who sent
/// them. Does nothing on kernels before Linux 6.16.
pub(crate) fn refuse_descriptors(socket: &UnixStream) {
    /// `SO_PASSRIGHTS` of Linux's `asm-generic/socket.h`, which the C library does not define yet.
    const PASS_RIGHTS: libc::c_int = 83;
    /// The size of the option's value in bytes.
    const LEN: libc::socklen_t = 4;
    let none: i32 = 0;
    // SAFETY: the value has the given length, and the kernel only reads it. An older kernel does
    // not know the option and does nothing.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            PASS_RIGHTS,
            std::ptr::from_ref(&none).cast(),
            LEN,
        );
    }
}

/// Closes the descriptors of this process from `first` to `last`, both included. With
/// `CLOSE_RANGE_CLOEXEC` in `flags`, marks them to be closed by `exec` instead. The caller must not
/// use a closed descriptor any more.
///
/// # Errors
/// `ENOSYS` or `EINVAL` of kernels before 5.11.
pub(super) fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    // SAFETY: the arguments are numbers. The callers are new processes that no longer use a
    // descriptor in this range.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;

    #[test]
    fn a_socket_refuses_descriptors_where_the_kernel_can() {
        let send = |refuses: bool| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            if refuses {
                refuse_descriptors(&ours);
            }
            let null = std::fs::File::open("/dev/null").unwrap();
            let sent = [null.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&sent)));
            let bytes = [io::IoSlice::new(b"x")];
            sendmsg(&theirs, &bytes, &mut ancillary, SendFlags::NOSIGNAL)
        };
        assert_eq!(send(false), Ok(1));
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        let mut numbers = release.split(['.', '-']).map(|word| word.parse::<u32>());
        let mut number = || numbers.next().and_then(Result::ok).unwrap_or(0);
        if (number(), number()) >= (6, 16) {
            assert_eq!(send(true), Err(Errno::PERM));
        } else {
            assert_eq!(send(true), Ok(1));
        }
    }
}
