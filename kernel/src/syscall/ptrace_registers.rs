//! `ptrace(2)`: the requests about registers.

use super::prctl::{ARCH_GET_FS, ARCH_GET_GS, ARCH_SET_FS, ARCH_SET_GS};
use crate::process::ptrace::registers::WORDS;
use crate::process::ptrace::{at_stop, breakpoints};
use crate::process::task::Task;
use logic::errno::Errno;
use machine::arch::USER_END;
use machine::arch::fpu::{FXSAVE_BYTES, XSAVE_BYTES};
use machine::uaccess::{self, UserPtr};
use zerocopy::IntoBytes;

/// Bytes of a register.
const WORD: usize = size_of::<u64>();
/// Bytes of `struct user`.
const USER_BYTES: u64 = 928;
/// The offset of the debug registers in `struct user`.
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
    /// Returns the number of bytes of the set.
    const fn bytes(self) -> usize {
        match self {
            Self::General => WORDS * WORD,
            Self::Floats => FXSAVE_BYTES,
            Self::Extended => XSAVE_BYTES,
        }
    }
}

/// Returns the index of the word at the offset `address` of `struct user`. Fails with `EIO` if the
/// offset is misaligned or beyond the structure.
fn place(address: u64) -> Result<usize, Errno> {
    if address >= USER_BYTES || !address.is_multiple_of(WORD as u64) {
        return Err(Errno::EIO);
    }
    usize::try_from(address / WORD as u64).map_err(|_| Errno::EIO)
}

/// Returns the number of the debug register at the offset `address` of `struct user`, or `None` if
/// there is none.
fn debug_register(address: u64) -> Option<usize> {
    let bytes = address.checked_sub(DEBUG_REGISTERS)?;
    let n = usize::try_from(bytes / WORD as u64).ok()?;
    (n < 8).then_some(n)
}

/// Returns the word at the offset `address` of the tracee's `struct user` (`PTRACE_PEEKUSR`). Words
/// other than registers are 0.
///
/// # Errors
/// Fails with `EIO` if `address` is misaligned or beyond the structure, and with `ESRCH` if the
/// tracee is not in a ptrace-stop.
pub(super) fn peek(tracee: &Task, address: u64) -> Result<u64, Errno> {
    at_stop(tracee, |state, registers| {
        let n = place(address)?;
        if n < WORDS {
            return Ok(registers.words(tracee, state)[n]);
        }
        Ok(debug_register(address).map_or(0, |n| breakpoints::read(state, n)))
    })
}

/// Sets the word at the offset `address` of the tracee's `struct user` to `value`
/// (`PTRACE_POKEUSR`).
///
/// # Errors
/// Fails with `EIO` if there is no register at `address` or a general register cannot have `value`.
/// Fails with `EINVAL` if `value` is no valid breakpoint, and with `ESRCH` if the tracee is not in
/// a ptrace-stop.
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

/// Writes the registers `set` of a tracee to the address `to`, cut to `room` bytes. Fails with
/// `ESRCH` if the tracee is not in a ptrace-stop, with `ENODEV` if the CPU lacks the registers, and
/// with `EFAULT` for a bad address.
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

/// Sets the registers `set` of a tracee from an image of `bytes` bytes at the address `from`. Fails
/// with `ESRCH` if the tracee is not in a ptrace-stop, with `ENODEV` if the CPU lacks the
/// registers, with `EFAULT` for a bad address, and with `EINVAL` or `EFAULT` for a wrong size.
/// Fails with `EINVAL` or `EIO` for a value that a program may not set.
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

/// Writes the registers `set` of a tracee to the address `to` (`PTRACE_GETREGS`,
/// `PTRACE_GETFPREGS`).
///
/// # Errors
/// Fails with `ESRCH` if the tracee is not in a ptrace-stop, and with `EFAULT`. Fails with `ENODEV`
/// for [`Set::Extended`] if the CPU has no XSAVE.
pub(super) fn get(tracee: &Task, set: Set, to: u64) -> Result<(), Errno> {
    show(tracee, set, to, set.bytes())
}

/// Sets the registers `set` of a tracee from the image at the address `from` (`PTRACE_SETREGS`,
/// `PTRACE_SETFPREGS`).
///
/// # Errors
/// Fails with `EIO` if a general register cannot have its value, and with `EINVAL` if another image
/// is invalid. The registers before a wrong general register are set. Otherwise fails as [`get`]
/// does.
pub(super) fn set(tracee: &Task, set: Set, from: u64) -> Result<(), Errno> {
    load(tracee, set, from, set.bytes())
}

/// Returns the set of registers of the note type `kind`, and the address and the length of the
/// buffer of the `struct iovec` at `vector`, cut to the set's size.
///
/// # Errors
/// Fails with `EINVAL` if the type is unknown or the length is no multiple of 8, with `ENXIO` for
/// `NT_386_IOPERM`, with `ESRCH` if the tracee is not in a ptrace-stop, and with `EFAULT`.
fn named(tracee: &Task, kind: u64, vector: u64) -> Result<(Set, u64, usize), Errno> {
    at_stop(tracee, |_, _| Ok(()))?;
    let [address, length] = UserPtr::<[u64; 2]>::new(vector).read()?;
    let set = match kind {
        PRSTATUS => Set::General,
        PRFPREG => Set::Floats,
        XSTATE => Set::Extended,
        // No program may use I/O ports.
        IOPERM => return Err(Errno::ENXIO),
        _ => return Err(Errno::EINVAL),
    };
    if !length.is_multiple_of(WORD as u64) {
        return Err(Errno::EINVAL);
    }
    let length = usize::try_from(length).map_or(set.bytes(), |length| length.min(set.bytes()));
    Ok((set, address, length))
}

/// Writes `length`, the number of bytes used, to the `struct iovec` at `vector`. Fails with
/// `EFAULT` for a bad address.
fn note_length(vector: u64, length: usize) -> Result<(), Errno> {
    UserPtr::<u64>::new(vector.wrapping_add(WORD as u64)).write(&(length as u64))
}

/// Writes the registers of the note type `kind` to the buffer of the `struct iovec` at `vector`
/// (`PTRACE_GETREGSET`), and the number of bytes written to the structure.
///
/// # Errors
/// Fails with `EINVAL` if the type is unknown or the length is no multiple of 8, and with `ENXIO`
/// for `NT_386_IOPERM`. Otherwise fails as [`get`] does.
pub(super) fn get_set(tracee: &Task, kind: u64, vector: u64) -> Result<(), Errno> {
    let (set, address, length) = named(tracee, kind, vector)?;
    show(tracee, set, address, length)?;
    note_length(vector, length)
}

/// Sets the registers of the note type `kind` from the buffer of the `struct iovec` at `vector`
/// (`PTRACE_SETREGSET`), and writes the number of bytes used to the structure.
///
/// # Errors
/// If the buffer is smaller than the set, fails with `EINVAL` for floating-point registers and with
/// `EFAULT` for extended ones. Otherwise fails as [`get_set`] and [`set`] do.
pub(super) fn set_set(tracee: &Task, kind: u64, vector: u64) -> Result<(), Errno> {
    let (set, address, length) = named(tracee, kind, vector)?;
    load(tracee, set, address, length)?;
    note_length(vector, length)
}

/// Sets the base of FS or GS of a tracee to `address`, or writes the base to the word at `address`
/// (`PTRACE_ARCH_PRCTL`). `code` is that of `arch_prctl(2)`.
///
/// # Errors
/// Fails with `EPERM` if a new base is not in user memory, with `EINVAL` if `code` is unknown, with
/// `ESRCH` if the tracee is not in a ptrace-stop, and with `EFAULT`.
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
