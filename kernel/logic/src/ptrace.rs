//! Decisions of `ptrace(2)` that need no hardware: options, events, status words, breakpoints,
//! steps.

use crate::errno::Errno;
use crate::signal_set::Signal;

bitflags::bitflags! {
    /// The options of a tracer (`PTRACE_O_*`).
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
    pub struct Options: u32 {
        /// Stops at system calls set bit 7 of the signal number, which distinguishes them from a
        /// SIGTRAP.
        const SYSGOOD = 1;
        /// The tracee stops at `fork`, and its child is traced.
        const FORK = 1 << 1;
        /// The tracee stops at `vfork`, and its child is traced.
        const VFORK = 1 << 2;
        /// The tracee stops at other clones, and its child is traced.
        const CLONE = 1 << 3;
        /// The tracee stops after exec, instead of a SIGTRAP.
        const EXEC = 1 << 4;
        /// The tracee stops when the child of its `vfork` has released the memory.
        const VFORK_DONE = 1 << 5;
        /// The tracee stops before its end.
        const EXIT = 1 << 6;
        /// The tracee stops when a filter of system calls requests it.
        const SECCOMP = 1 << 7;
        /// The tracee is killed when the tracer ends.
        const EXIT_KILL = 1 << 20;
        /// Filters of system calls do not run.
        const SUSPEND_SECCOMP = 1 << 21;
    }
}

impl Options {
    /// Returns the options in `bits`, the argument of `PTRACE_SETOPTIONS`.
    ///
    /// # Errors
    /// `EINVAL` for unknown bits.
    pub fn asked(bits: u64) -> Result<Self, Errno> {
        let known = u32::try_from(bits).ok().and_then(Self::from_bits);
        known.ok_or(Errno::EINVAL)
    }

    /// Returns the options in `bits`, the argument of `PTRACE_SEIZE`.
    ///
    /// # Errors
    /// `EIO` for unknown bits. `PTRACE_SETOPTIONS` fails with `EINVAL` instead.
    pub fn seized(bits: u64) -> Result<Self, Errno> {
        Self::asked(bits).map_err(|_| Errno::EIO)
    }
}

/// The events that stop a tracee, besides signals and system calls (`PTRACE_EVENT_*`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// The tracee has forked.
    Fork = 1,
    /// The tracee has called `vfork`.
    Vfork = 2,
    /// The tracee has created a thread, or another child.
    Clone = 3,
    /// The tracee runs another program.
    Exec = 4,
    /// The child of the tracee's `vfork` has released its memory.
    VforkDone = 5,
    /// The tracee is about to end.
    Exit = 6,
    /// A filter of system calls requests a stop.
    Seccomp = 7,
    /// The tracer requests a stop, or the process stops.
    Stop = 128,
}

impl Event {
    /// Returns the option that enables the event. Returns no option for `Stop`, which every seized
    /// tracee reports.
    pub const fn option(self) -> Options {
        match self {
            Self::Fork => Options::FORK,
            Self::Vfork => Options::VFORK,
            Self::Clone => Options::CLONE,
            Self::Exec => Options::EXEC,
            Self::VforkDone => Options::VFORK_DONE,
            Self::Exit => Options::EXIT,
            Self::Seccomp => Options::SECCOMP,
            Self::Stop => Options::empty(),
        }
    }

    /// Returns the event of a clone. The event is `Vfork` if `is_vfork`, `Fork` if `exit_signal` is
    /// `SIGCHLD`, and else `Clone`.
    pub fn of_clone(is_vfork: bool, exit_signal: u32) -> Self {
        if is_vfork {
            Self::Vfork
        } else if exit_signal == Signal::SIGCHLD.number() {
            Self::Fork
        } else {
            Self::Clone
        }
    }

    /// Returns the code of a stop for this event with `signal`, for [`status`].
    pub const fn code(self, signal: Signal) -> u32 {
        signal.number() | (self as u32) << 8
    }
}

/// Returns the code of a stop at a system call under `options`, for [`status`].
pub fn call_code(options: Options) -> u32 {
    let good = if options.contains(Options::SYSGOOD) {
        SYSGOOD
    } else {
        0
    };
    Signal::SIGTRAP.number() | good
}

/// The bit of the signal number in stops at system calls, with [`Options::SYSGOOD`].
pub const SYSGOOD: u32 = 0x80;

/// Returns the status word that `wait` returns for a stop with the code `code`.
pub const fn status(code: u32) -> u32 {
    code << 8 | 0x7f
}

/// Bits of DR7 that a program may set.
const DR7_USER: u64 = 0xffff_03ff;

/// Checks the breakpoints that `dr7`, a value for DR7, and `addresses`, the values of DR0 to DR3,
/// describe. Returns `dr7` without the bits that a program must not set.
///
/// # Errors
/// `EINVAL` for breakpoints on ports, for execution breakpoints whose length is not 1, and for
/// addresses that are not aligned.
pub fn control(addresses: &[u64; 4], dr7: u64) -> Result<u64, Errno> {
    let dr7 = dr7 & DR7_USER;
    for (n, address) in (0_u32..).zip(addresses) {
        if dr7 >> (2 * n) & 3 == 0 {
            continue;
        }
        let kind = dr7 >> (16 + 4 * n) & 3;
        let length = match dr7 >> (18 + 4 * n) & 3 {
            0 => 1,
            1 => 2,
            2 => 8,
            _ => 4,
        };
        let possible = match kind {
            0 => length == 1,
            2 => false,
            _ => true,
        };
        if !possible || !address.is_multiple_of(length) {
            return Err(Errno::EINVAL);
        }
    }
    Ok(dr7)
}

/// The largest length of an x86 instruction in bytes.
pub const INSTRUCTION_BYTES: usize = 15;

/// Returns whether `instruction`, the bytes of an instruction of 64-bit code, sets the flags from
/// memory (`popf`, `iret`). After such an instruction, the step flag (`TF`) has the value that the
/// program chose.
pub fn sets_flags(instruction: &[u8]) -> bool {
    for &byte in instruction {
        match byte {
            0x9d | 0xcf => return true,
            // Prefixes: segments, sizes, lock, repetition, REX.
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 | 0x40..=0x4f => {}
            _ => return false,
        }
    }
    false
}
