//! Restartable sequences (`rseq(2)`). The kernel writes a thread's CPU number to the thread's
//! memory. A critical section that a signal or another thread interrupts is aborted.
//!
//! A thread that has registered no structure pays one load when it gets a CPU. A registered thread
//! then gets the RSEQ bit in its work word. The exception is a thread in a system call that is on
//! the same CPU as before: no section can be interrupted there.

use super::TaskRef;
use super::signal;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use logic::errno::{Errno, SysResult};
use logic::rseq::Section;
use machine::arch::{USER_END, UserFrame, cpu_id};
use machine::sched::work;
use machine::uaccess::{self, UserPtr};

/// Size in bytes of `struct rseq`, and the alignment of its address.
const BYTES: usize = 32;
/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: u32 = 1;
/// `cpu_id` of a thread that has unregistered its structure.
const NO_CPU: u32 = u32::MAX;
/// The offset of the field `rseq_cs` in `struct rseq`.
const SECTION: u64 = 8;
/// The offset of the field `flags` in `struct rseq`.
const FLAGS: u64 = 16;

/// The `struct rseq` that a thread has registered by `rseq(2)`. Only the thread itself changes the
/// registration, so all accesses are relaxed.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    /// The structure's address; 0 if none is registered.
    address: AtomicU64,
    signature: AtomicU32,
    /// The CPU that the kernel last wrote to the structure.
    cpu: AtomicU32,
}

impl Registration {
    /// Returns whether the thread must check its `struct rseq` before it continues on this CPU.
    /// `in_call` says that the thread was in a system call.
    #[inline]
    pub(crate) fn is_due(&self, in_call: bool) -> bool {
        if self.address.load(Ordering::Relaxed) == 0 {
            return false;
        }
        !in_call || self.cpu.load(Ordering::Relaxed) != here()
    }

    /// Copies the registration of `parent` to the thread of a forked process, whose memory is a
    /// copy of the parent's.
    pub(crate) fn inherit(&self, parent: &Self) {
        let copy = |to: &AtomicU32, from: &AtomicU32| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.signature, &parent.signature);
        copy(&self.cpu, &parent.cpu);
        let address = parent.address.load(Ordering::Relaxed);
        self.address.store(address, Ordering::Relaxed);
    }

    /// Returns the address of the `struct rseq` and the signature before abort handlers, for
    /// tracers. The address is 0 if none is registered.
    pub(crate) fn configuration(&self) -> (u64, u32) {
        let address = self.address.load(Ordering::Relaxed);
        (address, self.signature.load(Ordering::Relaxed))
    }

    /// Removes the registration, because another program runs.
    pub(crate) fn forget(&self) {
        self.address.store(0, Ordering::Relaxed);
    }
}

fn here() -> u32 {
    u32::try_from(cpu_id()).unwrap_or(0)
}

/// Registers the `struct rseq` of `bytes` bytes at `address` for the current thread `task`
/// (`rseq(2)`). Removes the registration instead if `flags` is `RSEQ_FLAG_UNREGISTER`. `signature`
/// stands before the program's abort handlers. Returns 0.
///
/// # Errors
/// Fails with `EINVAL` if an argument is wrong or another structure is registered. Fails with
/// `EBUSY` if this structure is registered already, with `EPERM` if the signature is not the
/// registered one, and with `EFAULT` if the structure cannot be accessed.
pub(crate) fn register(
    task: TaskRef,
    address: u64,
    bytes: usize,
    flags: u32,
    signature: u32,
) -> SysResult {
    let own = task.rseq();
    let before = own.address.load(Ordering::Relaxed);
    let known = before == address && bytes == BYTES;
    let signed = own.signature.load(Ordering::Relaxed) == signature;
    if flags & UNREGISTER != 0 {
        if flags != UNREGISTER || before == 0 || !known {
            return Err(Errno::EINVAL);
        }
        if !signed {
            return Err(Errno::EPERM);
        }
        UserPtr::new(address).write(&[0, NO_CPU])?;
        own.forget();
        return Ok(0);
    }
    if flags != 0 || before != 0 && !known {
        return Err(Errno::EINVAL);
    }
    if before != 0 {
        return Err(if signed { Errno::EBUSY } else { Errno::EPERM });
    }
    if !address.is_multiple_of(BYTES as u64) || bytes != BYTES {
        return Err(Errno::EINVAL);
    }
    if address > USER_END - BYTES as u64 {
        return Err(Errno::EFAULT);
    }
    // A library that reuses a thread's memory may have left a section there.
    let section = UserPtr::<u64>::new(address + SECTION);
    if section.read()? != 0 {
        section.write(&0)?;
    }
    own.signature.store(signature, Ordering::Relaxed);
    own.cpu.store(NO_CPU, Ordering::Relaxed);
    own.address.store(address, Ordering::Relaxed);
    task.add_work(work::RSEQ);
    Ok(0)
}

/// Aborts the section that the thread is in, if any, and writes the thread's CPU to its structure.
/// Fails with `EFAULT` for a bad address, and with `EINVAL` for an invalid section.
fn look(task: TaskRef, frame: &mut UserFrame) -> Result<(), Errno> {
    let own = task.rseq();
    let address = own.address.load(Ordering::Relaxed);
    if address == 0 {
        return Ok(());
    }
    let pointer = UserPtr::<u64>::new(address + SECTION);
    let described = pointer.read()?;
    if described != 0 {
        let abort = section(own, described, frame.rip, address)?;
        pointer.write(&0)?;
        if let Some(abort) = abort {
            frame.rip = abort;
        }
    }
    // The read may have blocked, and the thread may be on another CPU now. Its RSEQ bit is then set
    // again.
    let cpu = here();
    if own.cpu.load(Ordering::Relaxed) != cpu {
        UserPtr::new(address).write(&[cpu, cpu])?;
        own.cpu.store(cpu, Ordering::Relaxed);
    }
    Ok(())
}

/// Returns the abort address if `next` lies in the section that the `struct rseq_cs` at `described`
/// describes, and `None` if it does not. `address` is that of the thread's `struct rseq`. Fails
/// with `EFAULT` for a bad address, and with `EINVAL` if the section is invalid, its abort address
/// lacks the signature, or the flags of the thread are not 0.
fn section(
    own: &Registration,
    described: u64,
    next: u64,
    address: u64,
) -> Result<Option<u64>, Errno> {
    let mut raw = [0; 32];
    uaccess::copy_in(&mut raw, described)?;
    let (words, _) = raw.as_chunks::<8>();
    let word = |at: usize| u64::from_le_bytes(words[at]);
    let (first, _) = words[0].as_chunks::<4>();
    let section = Section {
        version: u32::from_le_bytes(first[0]),
        flags: u32::from_le_bytes(first[1]),
        start: word(1),
        length: word(2),
        abort: word(3),
    };
    let interrupts = section.interrupts(next, USER_END);
    let interrupts = interrupts.map_err(|_| Errno::EINVAL)?;
    // The thread continues only at addresses that the program has marked with its signature.
    let mark = UserPtr::<u32>::new(section.abort.wrapping_sub(4)).read()?;
    if mark != own.signature.load(Ordering::Relaxed) {
        return Err(Errno::EINVAL);
    }
    if !interrupts {
        return Ok(None);
    }
    if UserPtr::<u32>::new(address + FLAGS).read()? != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Some(section.abort))
}

/// Serves the RSEQ bit of the work word of `task` on its way to user mode. Aborts the current
/// critical section and updates the CPU number. Sends SIGSEGV if the thread's `struct rseq` is
/// invalid.
pub(crate) fn serve(task: TaskRef, frame: &mut UserFrame) {
    task.clear_work(work::RSEQ);
    if look(task, frame).is_err() {
        signal::force_bad_frame();
    }
}

/// Aborts the critical section that `task` is in, if any, before a signal handler runs. The handler
/// must not return into the section.
///
/// # Errors
/// Fails with `EFAULT` if the thread's `struct rseq` or its section cannot be accessed, and with
/// `EINVAL` if it is invalid.
pub(crate) fn before_handler(task: TaskRef, frame: &mut UserFrame) -> Result<(), Errno> {
    look(task, frame)
}
