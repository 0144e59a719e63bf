//! `ptrace(2)`: the requests about registers.

use super::prctl::{ARCH_GET_FS, ARCH_GET_GS, ARCH_SET_FS, ARCH_SET_GS};
use crate::process::ptrace::registers::WORDS;
use crate::process::ptrace::{at_stop, breakpoints};
use crate::process::task::Task;
use crate::vm::uaccess::{self, UserPtr};
use logic::errno::Errno;
use machine::arch::USER_END;
use machine::arch::fpu::{FXSAVE_BYTES, XSAVE_BYTES};
use zerocopy::IntoBytes;

/// Bytes of a register.
const WORD: usize = size_of::<u64>();
/// Bytes of `struct user`.
const USER_BYTES: u64 = 928;
/// Where its debug registers are.
const DEBUG_REGISTERS: u64 = 848;

/// `NT_PRSTATUS`.
const PRSTATUS: u64 = 1;
/// `NT_PRFPREG`.
const PRFPREG: u64 = 2;
/// `NT_X86_XSTATE`.
const XSTATE: u64 = 0x202;
/// `NT_386_IOPERM`.
const IOPERM: u64 = 0x201;

/// A set of registers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// `struct user_regs_struct`.
    General,
    /// `struct user_fpregs_struct`.
    Floats,
    /// The XSAVE image.
    Extended,
}

impl Set {
    const fn bytes(self) -> usize {
        match self {
            Self::General => WORDS * WORD,
            Self::Floats => FXSAVE_BYTES,
            Self::Extended => XSAVE_BYTES,
        }
    }
}

/// A word of `struct user`, by its place.
fn place(address: u64) -> Result<usize, Errno> {
    if address >= USER_BYTES || !address.is_multiple_of(WORD as u64) {
        return Err(Errno::EIO);
    }
    usize::try_from(address / WORD as u64).map_err(|_| Errno::EIO)
}

/// The number of the debug register at a place, if one is there.
fn debug_register(address: u64) -> Option<usize> {
    let bytes = address.checked_sub(DEBUG_REGISTERS)?;
    let n = usize::try_from(bytes / WORD as u64).ok()?;
    (n < 8).then_some(n)
}

/// Returns a word of the tracee's `struct user` (`PTRACE_PEEKUSR`).
pub(super) fn peek(tracee: &Task, address: u64) -> Result<u64, Errno> {
    at_stop(tracee, |state, registers| {
        let n = place(address)?;
        if n < WORDS {
            return Ok(registers.words(tracee, state)[n]);
        }
        Ok(debug_register(address).map_or(0, |n| breakpoints::read(state, n)))
    })
}

/// Sets a word of the tracee's `struct user` (`PTRACE_POKEUSR`).
pub(super) fn poke(tracee: &Task, address: u64, value: u64) -> Result<(), Errno> {
    at_stop(tracee, |state, registers| {
        let n = place(address)?;
        if n < WORDS {
            return registers.set_word(tracee, state, n, value);
        }
        let n = debug_register(address).ok_or(Errno::EIO)?;
        breakpoints::write(tracee, state, n, value)
    })
}

/// Writes a set of registers, as far as there is room.
fn show(tracee: &Task, set: Set, to: u64, room: usize) -> Result<(), Errno> {
    let mut image = [0; XSAVE_BYTES];
    at_stop(tracee, |state, registers| {
        match set {
            Set::General => {
                let words = registers.words(tracee, state);
                image[..set.bytes()].copy_from_slice(words.as_bytes());
            }
            Set::Floats => image[..set.bytes()].copy_from_slice(&registers.floats().legacy()),
            Set::Extended => {
                image = *registers.floats().extended().ok_or(Errno::ENODEV)?;
            }
        }
        Ok(())
    })?;
    uaccess::copy_out(to, &image[..room.min(set.bytes())])
}

/// Sets registers from an image of `bytes` bytes.
fn load(tracee: &Task, set: Set, from: u64, bytes: usize) -> Result<(), Errno> {
    let mut image = [0; XSAVE_BYTES];
    at_stop(tracee, |_, registers| match set {
        Set::Floats if bytes != set.bytes() => Err(Errno::EINVAL),
        Set::Extended if registers.floats().extended().is_none() => Err(Errno::ENODEV),
        Set::Extended if bytes != set.bytes() => Err(Errno::EFAULT),
        _ => Ok(()),
    })?;
    uaccess::copy_in(&mut image[..bytes], from)?;
    at_stop(tracee, |state, registers| {
        let good = match set {
            Set::General => {
                let (words, _) = image[..bytes].as_chunks::<WORD>();
                for (n, word) in words.iter().enumerate() {
                    registers.set_word(tracee, state, n, u64::from_ne_bytes(*word))?;
                }
                true
            }
            Set::Floats => {
                let mut legacy = [0; FXSAVE_BYTES];
                legacy.copy_from_slice(&image[..FXSAVE_BYTES]);
                registers.floats_to_set().set_legacy(&legacy)
            }
            Set::Extended => registers.floats_to_set().set_extended(&image),
        };
        if good { Ok(()) } else { Err(Errno::EINVAL) }
    })
}

/// Writes the set of registers `set` of a tracee to the address `to` (`PTRACE_GETREGS`,
/// `PTRACE_GETFPREGS`).
pub(super) fn get(tracee: &Task, set: Set, to: u64) -> Result<(), Errno> {
    show(tracee, set, to, set.bytes())
}

/// Sets the registers `set` of a tracee from the address `from` (`PTRACE_SETREGS`,
/// `PTRACE_SETFPREGS`).
pub(super) fn set(tracee: &Task, set: Set, from: u64) -> Result<(), Errno> {
    load(tracee, set, from, set.bytes())
}

/// The set that a note's type names, and where its image is: the address and the length of a
/// `struct iovec`, cut to the set's size.
fn named(tracee: &Task, kind: u64, vector: u64) -> Result<(Set, u64, usize), Errno> {
    at_stop(tracee, |_, _| Ok(()))?;
    let [address, length] = UserPtr::<[u64; 2]>::new(vector).read()?;
    let set = match kind {
        PRSTATUS => Set::General,
        PRFPREG => Set::Floats,
        XSTATE => Set::Extended,
        // No program has ports of its own.
        IOPERM => return Err(Errno::ENXIO),
        _ => return Err(Errno::EINVAL),
    };
    if !length.is_multiple_of(WORD as u64) {
        return Err(Errno::EINVAL);
    }
    let length = usize::try_from(length).map_or(set.bytes(), |length| length.min(set.bytes()));
    Ok((set, address, length))
}

/// Tells how many bytes of a `struct iovec` were used.
fn note_length(vector: u64, length: usize) -> Result<(), Errno> {
    UserPtr::<u64>::new(vector.wrapping_add(WORD as u64)).write(&(length as u64))
}

/// Writes the registers of the note type `kind` to the buffer of the `struct iovec` at `vector`
/// (`PTRACE_GETREGSET`).
pub(super) fn get_set(tracee: &Task, kind: u64, vector: u64) -> Result<(), Errno> {
    let (set, address, length) = named(tracee, kind, vector)?;
    show(tracee, set, address, length)?;
    note_length(vector, length)
}

/// Sets the registers of the note type `kind` from the buffer of the `struct iovec` at `vector`
/// (`PTRACE_SETREGSET`).
pub(super) fn set_set(tracee: &Task, kind: u64, vector: u64) -> Result<(), Errno> {
    let (set, address, length) = named(tracee, kind, vector)?;
    load(tracee, set, address, length)?;
    note_length(vector, length)
}

/// Sets or returns the base of FS or GS of a tracee (`PTRACE_ARCH_PRCTL`).
pub(super) fn arch_prctl(tracee: &Task, code: u64, address: u64) -> Result<(), Errno> {
    let user = tracee.user_state().ok_or(Errno::ESRCH)?;
    let base = at_stop(tracee, |_, _| {
        let set = |which| {
            if address >= USER_END {
                return Err(Errno::EPERM);
            }
            user.lend_base(which, address);
            Ok(None)
        };
        match u32::try_from(code) {
            Ok(ARCH_SET_FS) => set(0),
            Ok(ARCH_SET_GS) => set(1),
            Ok(ARCH_GET_FS) => Ok(Some(user.fs_base())),
            Ok(ARCH_GET_GS) => Ok(Some(user.gs_base())),
            _ => Err(Errno::EINVAL),
        }
    })?;
    base.map_or(Ok(()), |base| UserPtr::<u64>::new(address).write(&base))
}
