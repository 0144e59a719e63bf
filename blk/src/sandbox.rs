//! Restricts the threads of disks to a list of system calls (seccomp), once their image is open.
//! Any other call fails with `EPERM`, so that an unexpected call fails one disk and does not end
//! the process.

use crate::capabilities::keep_capabilities;
use crate::xen::{evtchn, gntdev};
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// System calls of every disk's thread. `open`, `execve` and `socket` are not among them.
const COMMON_CALLS: &[i64] = &[
    // Waiting, and time.
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_clock_gettime,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Event counters, xenstore, messages on stderr.
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

/// Further system calls of a thread with a vhost-user socket. A thread for a Xen front-end may call
/// `ioctl` with some commands instead. Both may map memory that is not executable.
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
];

/// System calls of the thread that reads the sockets of front-ends.
const READER_CALLS: &[i64] = &[
    // Waiting.
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // The sockets, and waking a disk's thread.
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_write,
    libc::SYS_close,
    // The allocator.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Panicking.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_gettid,
    libc::SYS_getpid,
];

/// Commands of `fcntl` that a disk's thread may use: those that copy descriptors, get their flags,
/// and seal shared memory.
const FCNTL_COMMANDS: &[libc::c_int] = &[
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_ADD_SEALS,
];

/// The `ioctl` commands of Xen's devices that a disk's thread needs.
const XEN_COMMANDS: &[libc::c_ulong] = &[
    gntdev::MAP_GRANT_REF,
    gntdev::UNMAP_GRANT_REF,
    gntdev::GRANT_COPY,
    evtchn::BIND_INTERDOMAIN,
    evtchn::UNBIND,
    evtchn::NOTIFY,
];

/// Restricts the calling thread, for ever, to the system calls that a disk with a vhost-user socket
/// needs, and drops its capabilities. Any other call fails with `EPERM`. The thread may lock and
/// unlock only `image`, which is handed over when a guest migrates.
///
/// # Errors
/// Fails if the kernel refuses the filter, or to drop capabilities.
pub fn confine_worker(image: BorrowedFd<'_>) -> io::Result<()> {
    let calls = COMMON_CALLS.iter().chain(SOCKET_CALLS);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = calls.map(|call| (*call, vec![])).collect();
    let dword = SeccompCmpArgLen::Dword;
    // Commands that have a signal sent to a process are not allowed.
    let commands = FCNTL_COMMANDS.iter().map(|command| {
        let command = u64::from(command.unsigned_abs());
        rule(1, dword.clone(), SeccompCmpOp::Eq, command)
    });
    rules.insert(libc::SYS_fcntl, commands.collect::<io::Result<_>>()?);
    let image = u64::from(image.as_raw_fd().unsigned_abs());
    let image = rule(0, dword.clone(), SeccompCmpOp::Eq, image)?;
    rules.insert(libc::SYS_flock, vec![image]);
    let blocking = rule(1, dword, SeccompCmpOp::Eq, libc::FIONBIO)?;
    rules.insert(libc::SYS_ioctl, vec![blocking]);
    map_no_code(&mut rules)?;
    confine(rules)
}

/// Restricts the calling thread, for ever, to the system calls that a disk with a Xen front-end
/// needs, and drops its capabilities. Any other call fails with `EPERM`.
///
/// # Errors
/// Fails if the kernel refuses the filter, or to drop capabilities.
pub fn confine_xen_worker() -> io::Result<()> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        COMMON_CALLS.iter().map(|call| (*call, vec![])).collect();
    // The kernel uses only the lower half of a command.
    let command =
        |command: &libc::c_ulong| rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *command);
    let commands: io::Result<Vec<_>> = XEN_COMMANDS.iter().map(command).collect();
    rules.insert(libc::SYS_ioctl, commands?);
    map_no_code(&mut rules)?;
    confine(rules)
}

/// Restricts the calling thread, for ever, to the system calls for reading the sockets of
/// front-ends, and drops its capabilities. Any other call fails with `EPERM`.
///
/// # Errors
/// Fails if the kernel refuses the filter, or to drop capabilities.
pub fn confine_reader() -> io::Result<()> {
    let calls = READER_CALLS.iter();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = calls.map(|call| (*call, vec![])).collect();
    map_no_code(&mut rules)?;
    confine(rules)
}

/// Allows mappings that are not executable and do not grow by themselves.
fn map_no_code(rules: &mut BTreeMap<i64, Vec<SeccompRule>>) -> io::Result<()> {
    let without = |index, flags: libc::c_int| {
        let without = SeccompCmpOp::MaskedEq(u64::from(flags.unsigned_abs()));
        condition(index, SeccompCmpArgLen::Qword, without, 0)
    };
    let no_code = without(2, libc::PROT_EXEC)?;
    let fixed = without(3, libc::MAP_GROWSDOWN)?;
    let mut allow = |call, conditions| -> io::Result<()> {
        let plain = SeccompRule::new(conditions).map_err(io::Error::other)?;
        rules.insert(call, vec![plain]);
        Ok(())
    };
    allow(libc::SYS_mprotect, vec![no_code.clone()])?;
    allow(libc::SYS_mmap, vec![no_code, fixed])
}

/// Makes a rule that allows a call if its argument `index` compares with `value` by `operator`.
fn rule(
    index: u8,
    len: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> io::Result<SeccompRule> {
    let condition = condition(index, len, operator, value)?;
    SeccompRule::new(vec![condition]).map_err(io::Error::other)
}

fn condition(
    index: u8,
    len: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> io::Result<SeccompCondition> {
    SeccompCondition::new(index, len, operator, value).map_err(io::Error::other)
}

/// Drops all capabilities of the calling thread and installs a filter that allows only `rules`.
fn confine(mut rules: BTreeMap<i64, Vec<SeccompRule>>) -> io::Result<()> {
    // A panic may send a signal to this process only.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_confined_thread_opens_nothing_any_more() {
        let confined = std::thread::spawn(|| {
            assert!(File::open("/proc/self/status").is_ok());
            let image = File::open("/proc/self/status").unwrap();
            confine_worker(image.as_fd()).unwrap();
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
    fn confined_threads_map_memory_but_no_code_nor_what_grows() {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let worker = || confine_worker(File::open("/proc/self/status")?.as_fd());
        let confines: [fn() -> io::Result<()>; 3] = [worker, confine_xen_worker, confine_reader];
        for confine in confines {
            let confined = std::thread::spawn(move || {
                confine().unwrap();
                let none = (ProtFlags::empty(), MapFlags::empty());
                let code = (ProtFlags::EXEC, MapFlags::empty());
                let grows = (ProtFlags::empty(), MapFlags::GROWSDOWN);
                [none, code, grows].map(|(access, flags)| {
                    let access = ProtFlags::READ | ProtFlags::WRITE | access;
                    let flags = MapFlags::PRIVATE | flags;
                    // SAFETY: the kernel chooses the address of the new mapping, so no other memory
                    // is affected.
                    let mapped =
                        unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, access, flags) };
                    mapped.map(|_| ())
                })
            });
            let refused = Err(rustix::io::Errno::PERM);
            assert_eq!(confined.join().unwrap(), [Ok(()), refused, refused]);
        }
    }

    #[test]
    fn a_disk_s_thread_locks_its_image_alone() {
        use rustix::fs::{FlockOperation, MemfdFlags, fcntl_lock, flock, memfd_create};
        let confined = std::thread::spawn(|| {
            let [image, other] =
                ["image", "other"].map(|name| memfd_create(name, MemfdFlags::CLOEXEC).unwrap());
            confine_worker(image.as_fd()).unwrap();
            let (lock, unlock) = (
                FlockOperation::NonBlockingLockExclusive,
                FlockOperation::NonBlockingUnlock,
            );
            [
                flock(&image, lock),
                flock(&image, unlock),
                flock(&other, lock),
                fcntl_lock(&image, lock),
            ]
        });
        let refused = Err(rustix::io::Errno::PERM);
        assert_eq!(confined.join().unwrap(), [Ok(()), Ok(()), refused, refused]);
    }
}
