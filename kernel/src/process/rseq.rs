//! Restartable sequences (`rseq(2)`): a thread reads in its memory which CPU it is on, and a critical
//! section of it that another thread or a signal breaks into is given up.
//!
//! A thread without one pays a load when it gets a CPU. One with one has the RSEQ bit in its work word
//! set then, unless it is on the CPU where it was and in a call, where no section can be.

use super::TaskRef;
use super::signal;
use crate::vm::uaccess::{self, UserPtr};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use logic::errno::{Errno, SysResult};
use logic::rseq::Section;
use machine::arch::{USER_END, UserFrame, cpu_id};
use machine::sched::work;

/// Bytes of `struct rseq`, and what its address is a multiple of.
const BYTES: usize = 32;
/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: u32 = 1;
/// `cpu_id` of a thread that has given it up.
const NO_CPU: u32 = u32::MAX;
/// Where `rseq_cs` is in the structure.
const SECTION: u64 = 8;
/// Where `flags` is.
const FLAGS: u64 = 16;

/// What a thread has registered. Only the thread itself changes it, so everything is relaxed.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    /// Where the structure is; 0: nowhere.
    address: AtomicU64,
    signature: AtomicU32,
    /// The CPU that the structure names.
    cpu: AtomicU32,
}

impl Registration {
    /// Whether the thread has to look at its structure, as it goes on here.
    #[inline]
    pub(crate) fn is_due(&self, in_call: bool) -> bool {
        if self.address.load(Ordering::Relaxed) == 0 {
            return false;
        }
        !in_call || self.cpu.load(Ordering::Relaxed) != here()
    }

    /// Takes over what a forked process has, whose memory is a copy.
    pub(crate) fn inherit(&self, parent: &Self) {
        let copy = |to: &AtomicU32, from: &AtomicU32| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.signature, &parent.signature);
        copy(&self.cpu, &parent.cpu);
        let address = parent.address.load(Ordering::Relaxed);
        self.address.store(address, Ordering::Relaxed);
    }

    /// Where the structure is, and what sections are marked by; for tracers.
    pub(crate) fn configuration(&self) -> (u64, u32) {
        let address = self.address.load(Ordering::Relaxed);
        (address, self.signature.load(Ordering::Relaxed))
    }

    /// Another program runs.
    pub(crate) fn forget(&self) {
        self.address.store(0, Ordering::Relaxed);
    }
}

fn here() -> u32 {
    u32::try_from(cpu_id()).unwrap_or(0)
}

/// `rseq(2)` of the current thread.
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
    // Libraries that use a thread's memory again may have left a section there.
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

/// Gives up the section that the thread is in, if it is in one, and says where it runs now.
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
    // Reading may have waited, and the thread be elsewhere now: then its bit is set again.
    let cpu = here();
    if own.cpu.load(Ordering::Relaxed) != cpu {
        UserPtr::new(address).write(&[cpu, cpu])?;
        own.cpu.store(cpu, Ordering::Relaxed);
    }
    Ok(())
}

/// Where a thread goes on that goes on at `next`, if in the section that is described.
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
    // Only what the program has marked as such is gone on at.
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

/// What a thread does on its way to user mode whose work word says RSEQ.
pub(crate) fn serve(task: TaskRef, frame: &mut UserFrame) {
    task.clear_work(work::RSEQ);
    if look(task, frame).is_err() {
        signal::force_bad_frame();
    }
}

/// A handler is about to run: it must not return into a section.
///
/// # Errors
/// The thread's structure, or a section of it, is bad.
pub(crate) fn before_handler(task: TaskRef, frame: &mut UserFrame) -> Result<(), Errno> {
    look(task, frame)
}
