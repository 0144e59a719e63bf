//! What a disk's thread may still do once its image is open: a list of system calls, by seccomp.
//! Any other call fails with `EPERM`, so that a surprise is an error of one disk and no crash of
//! all.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;
use std::io;

/// Calls of a worker: waiting, its sockets, guest memory, the image, the pool, ending. No `open`,
/// no `execve`, no `socket`.
const WORKER_CALLS: &[i64] = &[
    // Waiting, and time.
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // The front-end.
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_shutdown,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_close,
    // Guest memory, in-flight memory, the pool, the allocator.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    // The image.
    libc::SYS_io_uring_enter,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_fdatasync,
    libc::SYS_fallocate,
    // Ending, and panicking.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
];

/// Confines the calling thread, for ever.
///
/// # Errors
/// If the kernel has no seccomp.
pub fn confine_worker() -> io::Result<()> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let rules: BTreeMap<i64, Vec<_>> = WORKER_CALLS.iter().map(|call| (*call, vec![])).collect();
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
}
