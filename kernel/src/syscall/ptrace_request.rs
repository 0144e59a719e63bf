//! `ptrace(2)`.

use super::ptrace_registers::{self as registers, Set};
use super::{Args, ptrace_filters as filters};
use crate::process::ptrace::resume::Way;
use crate::process::ptrace::{self, at_stop};
use crate::process::signal::{self, AUDIT_ARCH, SIGINFO_BYTES, SigInfo, SigSet, Signal};
use crate::process::task::{self, Task};
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use linux_raw_sys::ptrace as raw;
use logic::errno::{Errno, SysResult};
use logic::ptrace::{Event, Options, SYSGOOD};
use machine::sched;
use machine::sched::work;
use machine::uaccess::{self, UserPtr};

/// Bytes of a word of a tracee's memory.
const WORD: usize = size_of::<u64>();

/// `ptrace(2)`.
pub fn ptrace(a: &Args) -> SysResult {
    let Ok(request) = u32::try_from(a.0[0]) else {
        return unknown(a);
    };
    let done = match request {
        raw::PTRACE_TRACEME => ptrace::trace_me(),
        raw::PTRACE_ATTACH => ptrace::attach(a.int(1)),
        raw::PTRACE_SEIZE => {
            let target = find(a.int(1));
            // As on Linux, a missing thread is reported before wrong arguments.
            if target.is_err() && !is_zombie(a.int(1)) {
                return Err(Errno::ESRCH);
            }
            if a.addr(2) != 0 {
                return Err(Errno::EIO);
            }
            let options = filters::check_options(Options::seized(a.0[3])?)?;
            ptrace::seize(a.int(1), options)
        }
        _ => return of_tracee(request, a),
    };
    done.map(|()| 0)
}

/// Returns the error for an unknown request: `EIO`, or `ESRCH` if there is no tracee in a
/// ptrace-stop.
fn unknown(a: &Args) -> SysResult {
    let tracee = find(a.int(1))?;
    at_stop(&tracee, |_, _| Err(Errno::EIO))
}

fn find(tid: i32) -> Result<Arc<Task>, Errno> {
    let tid = u32::try_from(tid).map_err(|_| Errno::ESRCH)?;
    task::find_task(tid).ok_or(Errno::ESRCH)
}

fn is_zombie(tid: i32) -> bool {
    u32::try_from(tid).is_ok_and(|tid| {
        let table = task::table::lock();
        table.process(tid).is_some() || table.is_kept(tid)
    })
}

/// Returns the address space of a tracee in a ptrace-stop. Fails with `ESRCH` if the tracee is not
/// stopped, and with `EIO` if it has no memory.
fn memory(tracee: &Task) -> Result<Arc<AddressSpace>, Errno> {
    at_stop(tracee, |_, _| Ok(()))?;
    tracee.process().vm().ok_or(Errno::EIO)
}

/// Carries out the `request` of `ptrace(2)` about a tracee. Fails as `ptrace(2)` does.
fn of_tracee(request: u32, a: &Args) -> SysResult {
    let tracee = find(a.int(1))?;
    let (address, data) = (a.addr(2), a.addr(3));
    let way = |calls, emulates, steps| Way {
        calls,
        emulates,
        steps,
    };
    let resume = |way| ptrace::resume::resume(&tracee, way, data);
    let done = match request {
        raw::PTRACE_PEEKTEXT | raw::PTRACE_PEEKDATA => peek(&tracee, address, data),
        raw::PTRACE_POKETEXT | raw::PTRACE_POKEDATA => {
            let space = memory(&tracee)?;
            let written = space.write_bytes(address, &data.to_ne_bytes(), true);
            written.map_err(|_| Errno::EIO)
        }
        raw::PTRACE_PEEKUSR => {
            let word = registers::peek(&tracee, address)?;
            UserPtr::<u64>::new(data).write(&word)
        }
        raw::PTRACE_POKEUSR => registers::poke(&tracee, address, data),
        raw::PTRACE_GETREGS => registers::get(&tracee, Set::General, data),
        raw::PTRACE_SETREGS => registers::set(&tracee, Set::General, data),
        raw::PTRACE_GETFPREGS => registers::get(&tracee, Set::Floats, data),
        raw::PTRACE_SETFPREGS => registers::set(&tracee, Set::Floats, data),
        raw::PTRACE_GETREGSET => registers::get_set(&tracee, address, data),
        raw::PTRACE_SETREGSET => registers::set_set(&tracee, address, data),
        raw::PTRACE_ARCH_PRCTL => registers::arch_prctl(&tracee, data, address),
        raw::PTRACE_CONT => resume(way(false, false, false)),
        raw::PTRACE_SYSCALL => resume(way(true, false, false)),
        raw::PTRACE_SINGLESTEP => resume(way(false, false, true)),
        raw::PTRACE_SYSEMU => resume(way(false, true, false)),
        raw::PTRACE_SYSEMU_SINGLESTEP => resume(way(false, true, true)),
        raw::PTRACE_DETACH => ptrace::detach(&tracee, data),
        raw::PTRACE_KILL => {
            let own = ptrace::tracer_of(&tracee);
            if !own.is_some_and(|own| crate::process::current().is(&own)) {
                return Err(Errno::ESRCH);
            }
            signal::send_to_process(tracee.process(), SigInfo::kernel(Signal::SIGKILL))
        }
        raw::PTRACE_INTERRUPT => ptrace::interrupt(&tracee),
        raw::PTRACE_LISTEN => {
            at_stop(&tracee, |state, _| state.listen())?;
            sched::wake(&tracee);
            Ok(())
        }
        raw::PTRACE_SETOPTIONS | raw::PTRACE_OLDSETOPTIONS => {
            at_stop(&tracee, |_, _| Ok(()))?;
            let options = filters::check_options(Options::asked(data)?)?;
            at_stop(&tracee, |state, _| {
                state.options = options;
                Ok(())
            })
        }
        raw::PTRACE_GETEVENTMSG => {
            let message = at_stop(&tracee, |state, _| Ok(state.message))?;
            UserPtr::<u64>::new(data).write(&message)
        }
        raw::PTRACE_GETSIGINFO => {
            let info = at_stop(&tracee, |state, _| state.info.ok_or(Errno::EINVAL))?;
            uaccess::copy_out(data, &info.to_bytes())
        }
        raw::PTRACE_SETSIGINFO => set_info(&tracee, data),
        raw::PTRACE_PEEKSIGINFO => return peek_infos(&tracee, address, data),
        raw::PTRACE_GETSIGMASK => get_mask(&tracee, address, data),
        raw::PTRACE_SETSIGMASK => set_mask(&tracee, address, data),
        raw::PTRACE_GET_SYSCALL_INFO => return call_info(&tracee, a.size(2), data),
        raw::PTRACE_GET_RSEQ_CONFIGURATION => return rseq(&tracee, a.size(2), data),
        raw::PTRACE_SECCOMP_GET_FILTER => return filters::get_filter(&tracee, address, data),
        raw::PTRACE_SECCOMP_GET_METADATA => return filters::get_metadata(&tracee, address, data),
        _ => at_stop(&tracee, |_, _| Err(Errno::EIO)),
    };
    done.map(|()| 0)
}

fn peek(tracee: &Task, address: u64, to: u64) -> Result<(), Errno> {
    let space = memory(tracee)?;
    let mut word = [0; WORD];
    let read = space.read_bytes_forced(address, &mut word);
    read.map_err(|_| Errno::EIO)?;
    uaccess::copy_out(to, &word)
}

fn set_info(tracee: &Task, from: u64) -> Result<(), Errno> {
    at_stop(tracee, |_, _| Ok(()))?;
    let mut bytes = [0; SIGINFO_BYTES];
    uaccess::copy_in(&mut bytes, from)?;
    at_stop(tracee, |state, _| {
        let old = state.info.as_mut().ok_or(Errno::EINVAL)?;
        // An unchanged `siginfo_t` stays as the kernel made it.
        if old.to_bytes() != bytes {
            *old = SigInfo::of_tracer(&bytes).ok_or(Errno::EINVAL)?;
        }
        Ok(())
    })
}

fn peek_infos(tracee: &Task, address: u64, to: u64) -> SysResult {
    at_stop(tracee, |_, _| Ok(()))?;
    let [first, rest] = UserPtr::<[u64; 2]>::new(address).read()?;
    let flags = rest & 0xffff_ffff;
    let count = (rest >> 32) as usize;
    if flags & !u64::from(raw::PTRACE_PEEKSIGINFO_SHARED) != 0 || count > i32::MAX as usize {
        return Err(Errno::EINVAL);
    }
    let shared = flags != 0;
    let mut done = 0;
    while done < count {
        let Some(place) = usize::try_from(first)
            .ok()
            .and_then(|n| n.checked_add(done))
        else {
            break;
        };
        let info = {
            let group = tracee.process().group.lock();
            if shared {
                group.pending.entry(place)
            } else {
                tracee.signals().pending().entry(place)
            }
        };
        let Some(info) = info else { break };
        let at = to.wrapping_add((done * SIGINFO_BYTES) as u64);
        if let Err(error) = uaccess::copy_out(at, &info.to_bytes()) {
            return if done == 0 { Err(error) } else { Ok(done) };
        }
        done += 1;
        if crate::process::current().signal_pending() {
            break;
        }
    }
    Ok(done)
}

fn get_mask(tracee: &Task, size: u64, to: u64) -> Result<(), Errno> {
    let mask = at_stop(tracee, |_, _| {
        if size != WORD as u64 {
            return Err(Errno::EINVAL);
        }
        let signals = tracee.signals();
        Ok(if tracee.work() & work::RESTORE_MASK != 0 {
            signals.saved_mask()
        } else {
            signals.blocked()
        })
    })?;
    UserPtr::<u64>::new(to).write(&mask.0)
}

fn set_mask(tracee: &Task, size: u64, from: u64) -> Result<(), Errno> {
    at_stop(tracee, |_, _| {
        if size == WORD as u64 {
            Ok(())
        } else {
            Err(Errno::EINVAL)
        }
    })?;
    let mask = UserPtr::<u64>::new(from).read()?;
    at_stop(tracee, |_, _| {
        tracee.signals().set_blocked(SigSet(mask).blockable());
        tracee.clear_work(work::RESTORE_MASK);
        Ok(())
    })
}

/// `PTRACE_GET_SYSCALL_INFO`: writes the state of the tracee's system call to `to`, cut to `room`
/// bytes. Returns the full number of bytes, even if `room` is smaller. Fails with `ESRCH` if the
/// tracee is not in a ptrace-stop, and with `EFAULT` for a bad address.
fn call_info(tracee: &Task, room: usize, to: u64) -> SysResult {
    /// The number of bytes of the common part, and with those of a call's entry, of a call that a
    /// filter reports, and of a call's exit.
    const ALL: usize = 24;
    const ENTRY: usize = ALL + 7 * WORD;
    const FILTERED: usize = ENTRY + size_of::<u32>();
    const EXIT: usize = ALL + WORD + 1;
    let trap = (Signal::SIGTRAP.number() | SYSGOOD).cast_signed();
    let filtered = Event::Seccomp.code(Signal::SIGTRAP).cast_signed();
    let mut bytes = [0; ENTRY + WORD];
    let size = at_stop(tracee, |state, registers| {
        let frame = registers.frame();
        let mut put = |at: usize, word: u64| {
            bytes[at..at + WORD].copy_from_slice(&word.to_ne_bytes());
        };
        put(0, u64::from(AUDIT_ARCH) << 32);
        put(8, frame.rip);
        put(16, frame.rsp);
        let code = state.info.map_or(0, |info| info.code);
        let at_call = code == trap;
        let mut put_call = || {
            put(ALL, frame.orig_rax);
            let arguments = Args::of(frame).0;
            for (n, argument) in arguments.into_iter().enumerate() {
                put(ALL + (1 + n) * WORD, argument);
            }
        };
        let (kind, size) = match u32::try_from(state.message) {
            Ok(_) if code == filtered => {
                put_call();
                put(ENTRY, state.message);
                (raw::PTRACE_SYSCALL_INFO_SECCOMP, FILTERED)
            }
            Ok(raw::PTRACE_EVENTMSG_SYSCALL_ENTRY) if at_call => {
                put_call();
                (raw::PTRACE_SYSCALL_INFO_ENTRY, ENTRY)
            }
            Ok(raw::PTRACE_EVENTMSG_SYSCALL_EXIT) if at_call => {
                put(ALL, frame.rax);
                bytes[ALL + WORD] = u8::from(frame.rax > u64::MAX - 4095);
                (raw::PTRACE_SYSCALL_INFO_EXIT, EXIT)
            }
            _ => (raw::PTRACE_SYSCALL_INFO_NONE, ALL),
        };
        let [kind, ..] = kind.to_le_bytes();
        bytes[0] = kind;
        Ok(size)
    })?;
    uaccess::copy_out(to, &bytes[..size.min(room)])?;
    Ok(size)
}

/// `PTRACE_GET_RSEQ_CONFIGURATION`: writes the registration of the tracee's `struct rseq` to `to`,
/// cut to `room` bytes. Returns the full number of bytes, even if `room` is smaller. Fails with
/// `ESRCH` if the tracee is not in a ptrace-stop, and with `EFAULT` for a bad address.
fn rseq(tracee: &Task, room: usize, to: u64) -> SysResult {
    /// The size of a registered `struct rseq` in bytes.
    const RSEQ_BYTES: u32 = 32;
    let (address, signature) = at_stop(tracee, |_, _| Ok(tracee.rseq().configuration()))?;
    let (bytes, signature) = match address {
        0 => (0, 0),
        _ => (RSEQ_BYTES, signature),
    };
    let mut answer = [0; 24];
    answer[..8].copy_from_slice(&address.to_ne_bytes());
    answer[8..12].copy_from_slice(&bytes.to_ne_bytes());
    answer[12..16].copy_from_slice(&signature.to_ne_bytes());
    uaccess::copy_out(to, &answer[..room.min(answer.len())])?;
    Ok(answer.len())
}
