//! New threads and processes.

use super::record::CloneArgs;
use super::{Args, extensible};
use crate::process::signal::{MAX_SIGNAL, Signal};
use crate::process::task::{self, CloneRequest};
use linux_raw_sys::general as raw;
use logic::errno::{Errno, SysResult};
use logic::own::Token;
use machine::arch::{USER_END, UserFrame};
use machine::uaccess;

fn make(request: &CloneRequest, frame: &mut UserFrame, token: &mut Token) -> SysResult {
    task::clone(request, frame, token).map(|pid| pid as usize)
}

/// `fork(2)`.
pub fn fork(_a: &Args, frame: &mut UserFrame, token: &mut Token) -> SysResult {
    let request = CloneRequest {
        exit_signal: Signal::SIGCHLD.number(),
        ..Default::default()
    };
    make(&request, frame, token)
}

/// `vfork(2)`.
pub fn vfork(_a: &Args, frame: &mut UserFrame, token: &mut Token) -> SysResult {
    let request = CloneRequest {
        flags: u64::from(raw::CLONE_VM | raw::CLONE_VFORK),
        exit_signal: Signal::SIGCHLD.number(),
        ..Default::default()
    };
    make(&request, frame, token)
}

/// `clone(2)`.
pub fn clone(a: &Args, frame: &mut UserFrame, token: &mut Token) -> SysResult {
    let request = CloneRequest {
        flags: u64::from(a.uint(0)) & !u64::from(raw::CSIGNAL),
        exit_signal: a.uint(0) & raw::CSIGNAL,
        stack: a.addr(1),
        parent_tid: a.addr(2),
        // One argument has both meanings, so a call with both flags is refused.
        pidfd: a.addr(2),
        child_tid: a.addr(3),
        tls: a.addr(4),
    };
    make(&request, frame, token)
}

/// `clone3(2)`. The caller cannot choose thread numbers (`set_tid`) or a control group.
pub fn clone3(a: &Args, frame: &mut UserFrame, token: &mut Token) -> SysResult {
    /// The most numbers that `set_tid` may name, one for each level of name spaces.
    const MOST_TIDS: usize = 32;
    let size = a.size(1);
    let args: CloneArgs = extensible::read(a.addr(0), size, raw::CLONE_ARGS_SIZE_VER0 as usize)?;
    let into_cgroup = args.flags & raw::CLONE_INTO_CGROUP != 0;
    let with_cgroup = size >= raw::CLONE_ARGS_SIZE_VER2 as usize;
    let signal = u32::try_from(args.exit_signal).map_err(|_| Errno::EINVAL)?;
    if args.set_tid_size > MOST_TIDS as u64
        || (args.set_tid == 0) != (args.set_tid_size == 0)
        || signal > MAX_SIGNAL
        || into_cgroup && (args.cgroup > i32::MAX as u64 || !with_cgroup)
    {
        return Err(Errno::EINVAL);
    }
    let mut numbers = [0; MOST_TIDS * 4];
    let named = super::value(args.set_tid_size) * 4;
    uaccess::copy_in(&mut numbers[..named], args.set_tid)?;
    let flag = |flag: u32| args.flags & u64::from(flag) != 0;
    if flag(raw::CLONE_DETACHED)
        || flag(raw::CSIGNAL)
        || (flag(raw::CLONE_THREAD) || flag(raw::CLONE_PARENT)) && signal != 0
    {
        return Err(Errno::EINVAL);
    }
    let request = CloneRequest {
        flags: args.flags & !raw::CLONE_INTO_CGROUP,
        exit_signal: signal,
        stack: stack_top(args.stack, args.stack_size)?,
        parent_tid: args.parent_tid,
        pidfd: args.pidfd,
        child_tid: args.child_tid,
        tls: args.tls,
    };
    request.check()?;
    // Programs cannot choose numbers here, and no descriptor belongs to a control group.
    if args.set_tid_size != 0 {
        return Err(if args.set_tid_size > 1 {
            Errno::EINVAL
        } else {
            Errno::EPERM
        });
    }
    if into_cgroup {
        return Err(Errno::EBADF);
    }
    make(&request, frame, token)
}

/// Returns the end of the stack that has `size` bytes from `lowest` on; 0 if both are 0. Fails with
/// `EINVAL` if only one is 0 or the stack is not in the address range of programs.
fn stack_top(lowest: u64, size: u64) -> Result<u64, Errno> {
    if (lowest == 0) != (size == 0) {
        return Err(Errno::EINVAL);
    }
    let end = lowest.checked_add(size).filter(|&end| end <= USER_END);
    end.ok_or(Errno::EINVAL)
}
