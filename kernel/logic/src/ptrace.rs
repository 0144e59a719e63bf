//! What `ptrace(2)` decides without a machine: options, events, status words, breakpoints, steps.

use crate::errno::Errno;
use crate::signal_set::Signal;

bitflags::bitflags! {
    /// `PTRACE_O_*`.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
    pub struct Options: u32 {
        /// Stops at calls are told from a SIGTRAP by bit 7.
        const SYSGOOD = 1;
        /// `fork` stops, and its child is traced.
        const FORK = 1 << 1;
        /// The same of `vfork`.
        const VFORK = 1 << 2;
        /// The same of other clones.
        const CLONE = 1 << 3;
        /// A stop after exec, instead of a SIGTRAP.
        const EXEC = 1 << 4;
        /// A stop when the child of `vfork` has let go of the memory.
        const VFORK_DONE = 1 << 5;
        /// A stop before the end.
        const EXIT = 1 << 6;
        /// Stops that filters of calls ask for.
        const SECCOMP = 1 << 7;
        /// The tracer's end kills.
        const EXIT_KILL = 1 << 20;
        /// Filters of calls are not asked.
        const SUSPEND_SECCOMP = 1 << 21;
    }
}

impl Options {
    /// What a tracer asks for.
    ///
    /// # Errors
    /// `EINVAL` for unknown bits.
    pub fn asked(bits: u64) -> Result<Self, Errno> {
        let known = u32::try_from(bits).ok().and_then(Self::from_bits);
        known.ok_or(Errno::EINVAL)
    }

    /// The same as `PTRACE_SEIZE` refuses it.
    ///
    /// # Errors
    /// `EIO` for unknown bits.
    pub fn seized(bits: u64) -> Result<Self, Errno> {
        Self::asked(bits).map_err(|_| Errno::EIO)
    }
}

/// What a tracee stops for besides signals and calls: `PTRACE_EVENT_*`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// It has forked.
    Fork = 1,
    /// It has called `vfork`.
    Vfork = 2,
    /// It has made a thread, or another child.
    Clone = 3,
    /// It runs another program.
    Exec = 4,
    /// The child of its `vfork` has let go of its memory.
    VforkDone = 5,
    /// It is about to end.
    Exit = 6,
    /// A filter of calls asks for it.
    Seccomp = 7,
    /// It was told to stop, or its process stops.
    Stop = 128,
}

impl Event {
    /// The option that asks for it; a seized tracee has `Stop` anyway.
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

    /// What a clone is: `vfork` by its flag, `fork` by the signal of its end.
    pub fn of_clone(is_vfork: bool, exit_signal: u32) -> Self {
        if is_vfork {
            Self::Vfork
        } else if exit_signal == Signal::SIGCHLD.number() {
            Self::Fork
        } else {
            Self::Clone
        }
    }

    /// How a stop for it is told, and by which signal.
    pub const fn code(self, signal: Signal) -> u32 {
        signal.number() | (self as u32) << 8
    }
}

/// How a stop at a call is told.
pub fn call_code(options: Options) -> u32 {
    let good = if options.contains(Options::SYSGOOD) {
        SYSGOOD
    } else {
        0
    };
    Signal::SIGTRAP.number() | good
}

/// Bit of a signal's number in stops at calls.
pub const SYSGOOD: u32 = 0x80;

/// What `wait` says of a stop with this code.
pub const fn status(code: u32) -> u32 {
    code << 8 | 0x7f
}

/// Bits of DR7 that a program may set.
const DR7_USER: u64 = 0xffff_03ff;

/// Checks breakpoints as DR7 and the addresses describe them; gives what DR7 may be.
///
/// # Errors
/// `EINVAL` for breakpoints on ports, executed ones of another length than 1, and addresses that are
/// not aligned.
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

/// The most bytes of an instruction.
pub const INSTRUCTION_BYTES: usize = 15;

/// Whether an instruction of 64-bit code sets the flags from memory (`popf`, `iret`), so that the step
/// flag after it is the program's own.
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
