//! What a disk's thread may still do once its image is open: a list of system calls, by seccomp. Any
//! other fails with `EPERM`, so that a surprise is an error of one disk and no crash of all.

use crate::capabilities::keep_capabilities;
use crate::xen::{evtchn, gntdev};
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// Calls of every worker: waiting, the image, the pool, ending. No `open`, no `execve`, no `socket`.
const COMMON_CALLS: &[i64] = &[
    // Waiting, and time.
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_clock_gettime,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Event counters, xenstore, words for people.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    // Guest memory, the pool, the allocator.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // The image.
    libc::SYS_io_uring_enter,
    libc::SYS_preadv,
    libc::SYS_pwritev2,
    libc::SYS_fdatasync,
    libc::SYS_fallocate,
    // Ending, and panicking.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
];

/// What a worker with a socket may call besides. A worker of Xen's door has none of these; it may
/// call `ioctl` with some commands only. Both may map memory, but none that can be executed.
const SOCKET_CALLS: &[i64] = &[
    // Waiting, and time.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    // The front-end.
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_shutdown,
    libc::SYS_writev,
    // Guest memory, in-flight memory.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_preadv2,
    libc::SYS_rt_sigaction,
    // The image, handed over to the back-end where a guest goes.
    libc::SYS_flock,
];

/// The commands of `fcntl` that a worker may give: copies of descriptors, what they are, and seals of memory
/// that it shares.
const FCNTL_COMMANDS: &[libc::c_int] = &[
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_ADD_SEALS,
];

/// The commands of Xen's devices that a worker needs.
const XEN_COMMANDS: &[libc::c_ulong] = &[
    gntdev::MAP_GRANT_REF,
    gntdev::UNMAP_GRANT_REF,
    gntdev::GRANT_COPY,
    evtchn::BIND_INTERDOMAIN,
    evtchn::UNBIND,
    evtchn::NOTIFY,
];

/// Confines the calling thread, for ever, to what a disk with a socket needs.
///
/// # Errors
/// If the kernel has no seccomp.
pub fn confine_worker() -> io::Result<()> {
    let calls = COMMON_CALLS.iter().chain(SOCKET_CALLS);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = calls.map(|call| (*call, vec![])).collect();
    let dword = SeccompCmpArgLen::Dword;
    // None that has a signal sent to a process.
    let commands = FCNTL_COMMANDS.iter().map(|command| {
        let command = u64::from(command.unsigned_abs());
        rule(1, dword.clone(), SeccompCmpOp::Eq, command)
    });
    rules.insert(libc::SYS_fcntl, commands.collect::<io::Result<_>>()?);
    let blocking = rule(1, dword, SeccompCmpOp::Eq, libc::FIONBIO)?;
    rules.insert(libc::SYS_ioctl, vec![blocking]);
    map_no_code(&mut rules)?;
    confine(rules)
}

/// Confines the calling thread, for ever, to what a disk for a Xen front-end needs.
///
/// # Errors
/// If the kernel has no seccomp.
pub fn confine_xen_worker() -> io::Result<()> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        COMMON_CALLS.iter().map(|call| (*call, vec![])).collect();
    // The kernel looks at the lower half of a command alone.
    let command =
        |command: &libc::c_ulong| rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *command);
    let commands: io::Result<Vec<_>> = XEN_COMMANDS.iter().map(command).collect();
    rules.insert(libc::SYS_ioctl, commands?);
    map_no_code(&mut rules)?;
    confine(rules)
}

/// Allows memory to be mapped that holds no code.
fn map_no_code(rules: &mut BTreeMap<i64, Vec<SeccompRule>>) -> io::Result<()> {
    let executable = SeccompCmpOp::MaskedEq(u64::from(libc::PROT_EXEC.unsigned_abs()));
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let plain = rule(2, SeccompCmpArgLen::Qword, executable.clone(), 0)?;
        rules.insert(call, vec![plain]);
    }
    Ok(())
}

/// Allows a call whose argument `index` compares so with `value`.
fn rule(
    index: u8,
    len: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> io::Result<SeccompRule> {
    let condition = SeccompCondition::new(index, len, operator, value).map_err(io::Error::other)?;
    SeccompRule::new(vec![condition]).map_err(io::Error::other)
}

fn confine(mut rules: BTreeMap<i64, Vec<SeccompRule>>) -> io::Result<()> {
    // A panic ends this process by a signal, and no other.
    let own = u64::from(std::process::id());
    let own = rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own)?;
    rules.insert(libc::SYS_tgkill, vec![own]);
    keep_capabilities(CapabilitySet::empty())?;
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch);
    let program: BpfProgram = filter
        .map_err(io::Error::other)?
        .try_into()
        .map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_confined_thread_opens_nothing_any_more() {
        let confined = std::thread::spawn(|| {
            assert!(File::open("/proc/self/status").is_ok());
            confine_worker().unwrap();
            let error = File::open("/proc/self/status").unwrap_err();
            let fork = std::process::Command::new("/bin/true").spawn();
            (error.kind(), fork.is_err())
        });
        assert_eq!(
            confined.join().unwrap(),
            (io::ErrorKind::PermissionDenied, true)
        );
        assert!(
            File::open("/proc/self/status").is_ok(),
            "other threads are as they were"
        );
    }

    #[test]
    fn a_confined_thread_maps_memory_but_no_code() {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        for confine in [confine_worker, confine_xen_worker] {
            let confined = std::thread::spawn(move || {
                confine().unwrap();
                [ProtFlags::empty(), ProtFlags::EXEC].map(|more| {
                    let access = ProtFlags::READ | ProtFlags::WRITE | more;
                    // SAFETY: a new mapping at an address of the kernel's choice.
                    let mapped = unsafe {
                        mmap_anonymous(std::ptr::null_mut(), 4096, access, MapFlags::PRIVATE)
                    };
                    mapped.map(|_| ())
                })
            });
            let refused = Err(rustix::io::Errno::PERM);
            assert_eq!(confined.join().unwrap(), [Ok(()), refused]);
        }
    }
}
