//! The details of a signal: `siginfo_t`.

use super::Signal;

/// Size in bytes of the ABI's `siginfo_t`.
pub const SIGINFO_BYTES: usize = 128;

/// The `si_code` of a signal that `kill` sent.
pub const SI_USER: i32 = 0;
/// The `si_code` of a signal that the kernel sent.
pub const SI_KERNEL: i32 = 0x80;
/// The `si_code` of a signal that `tkill` or `tgkill` sent.
pub const SI_TKILL: i32 = -6;
/// The `si_code` of a signal about a descriptor (`F_SETSIG`), if the signal's other codes have a
/// meaning of their own.
pub const SI_SIGIO: i32 = -5;
/// The `si_code` of a signal that a POSIX message queue sent.
pub const SI_MESGQ: i32 = -3;
/// The `si_code` of a signal that a POSIX timer sent.
pub const SI_TIMER: i32 = -2;

/// `si_code` of a call that a filter refuses.
const SYS_SECCOMP: i32 = 1;
/// `AUDIT_ARCH_X86_64`, which names the architecture of system call numbers.
pub const AUDIT_ARCH: u32 = 0xc000_003e;

/// A signal with the details that its receiver gets.
#[derive(Copy, Clone, Debug)]
pub struct SigInfo {
    /// The signal.
    pub signal: Signal,
    /// `si_errno`.
    pub errno: i32,
    /// `si_code`: the signal's origin.
    pub code: i32,
    /// The fields that depend on `code`.
    pub detail: Detail,
}

/// The fields of `siginfo_t` that depend on the signal's origin.
#[derive(Copy, Clone, Debug)]
pub enum Detail {
    /// A process sent the signal.
    Sender {
        /// The sender's number.
        pid: u32,
        /// The sender's user.
        uid: u32,
    },
    /// A process sent the signal with a value.
    Queued {
        /// The sender's number.
        pid: u32,
        /// The sender's user.
        uid: u32,
        /// `si_value`.
        value: u64,
    },
    /// A POSIX timer expired.
    Timer {
        /// `si_timerid`.
        id: i32,
        /// Distinguishes the timer from others that had its number before or get it later.
        serial: u32,
        /// Expirations since the last delivery, minus one.
        overrun: i32,
        /// `si_value`.
        value: u64,
    },
    /// A child changed its state.
    Child {
        /// The child's number.
        pid: u32,
        /// The child's user.
        uid: u32,
        /// Exit code or signal number.
        status: i32,
        /// User time in clock ticks.
        utime: i64,
        /// System time in clock ticks.
        stime: i64,
    },
    /// Bytes 16 to 47, as a tracer has set them.
    Any([u64; 4]),
    /// Something happened to a descriptor.
    Descriptor {
        /// `si_band`.
        band: u64,
        /// `si_fd`.
        fd: i32,
    },
    /// A memory access or instruction failed.
    Fault {
        /// `si_addr`.
        address: u64,
    },
    /// A filter refused a call.
    Call {
        /// `si_call_addr`: the address at which the program continues.
        address: u64,
        /// `si_syscall`.
        number: i32,
    },
}

impl SigInfo {
    /// Returns `signal` with the details of a signal that the kernel sends.
    pub const fn kernel(signal: Signal) -> Self {
        Self {
            signal,
            errno: 0,
            code: SI_KERNEL,
            detail: Detail::Sender { pid: 0, uid: 0 },
        }
    }

    /// Returns `signal` with the details of a signal that the process `pid` of the user `uid`
    /// sends. `code` is the `si_code`.
    pub const fn user(signal: Signal, code: i32, pid: u32, uid: u32) -> Self {
        Self {
            signal,
            errno: 0,
            code,
            detail: Detail::Sender { pid, uid },
        }
    }

    /// Returns the `SIGSYS` for a system call that a seccomp filter refuses. `number` is the number
    /// of the call, `address` the address at which the program continues, and `data` the filter's
    /// value.
    pub const fn refused_call(number: i32, address: u64, data: u16) -> Self {
        Self {
            signal: Signal::SIGSYS,
            errno: data as i32,
            code: SYS_SECCOMP,
            detail: Detail::Call { address, number },
        }
    }

    /// Returns the signal and its details as the bytes of a `siginfo_t`.
    pub fn to_bytes(self) -> [u8; SIGINFO_BYTES] {
        let mut bytes = [0; SIGINFO_BYTES];
        let mut put = |offset: usize, value: &[u8]| {
            bytes[offset..offset + value.len()].copy_from_slice(value);
        };
        put(0, &self.signal.number().to_ne_bytes());
        put(4, &self.errno.to_ne_bytes());
        put(8, &self.code.to_ne_bytes());
        match self.detail {
            Detail::Sender { pid, uid } => {
                put(16, &pid.to_ne_bytes());
                put(20, &uid.to_ne_bytes());
            }
            Detail::Queued { pid, uid, value } => {
                put(16, &pid.to_ne_bytes());
                put(20, &uid.to_ne_bytes());
                put(24, &value.to_ne_bytes());
            }
            Detail::Timer {
                id, overrun, value, ..
            } => {
                put(16, &id.to_ne_bytes());
                put(20, &overrun.to_ne_bytes());
                put(24, &value.to_ne_bytes());
            }
            Detail::Child {
                pid,
                uid,
                status,
                utime,
                stime,
            } => {
                put(16, &pid.to_ne_bytes());
                put(20, &uid.to_ne_bytes());
                put(24, &status.to_ne_bytes());
                put(32, &utime.to_ne_bytes());
                put(40, &stime.to_ne_bytes());
            }
            Detail::Any(words) => {
                for (at, word) in (16..).step_by(8).zip(words) {
                    put(at, &word.to_ne_bytes());
                }
            }
            Detail::Descriptor { band, fd } => {
                put(16, &band.to_ne_bytes());
                put(24, &fd.to_ne_bytes());
            }
            Detail::Fault { address } => put(16, &address.to_ne_bytes()),
            Detail::Call { address, number } => {
                put(16, &address.to_ne_bytes());
                put(24, &number.to_ne_bytes());
                put(28, &AUDIT_ARCH.to_ne_bytes());
            }
        }
        bytes
    }

    /// Returns the signal that the bytes of a `siginfo_t` describe, as a tracer passes them to
    /// `PTRACE_SETSIGINFO`. Returns `None` if the number of the signal is invalid.
    pub fn of_tracer(bytes: &[u8; SIGINFO_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |n: usize| u64::from_ne_bytes(words[n]);
        let mut number = [0; 4];
        number.copy_from_slice(&bytes[..4]);
        let signal = Signal::new(u32::from_ne_bytes(number))?;
        Some(Self {
            detail: Detail::Any([word(2), word(3), word(4), word(5)]),
            ..Self::from_bytes(signal, bytes)
        })
    }

    /// Returns `signal` with the code, the sender and the value in the bytes of a `siginfo_t`, as a
    /// program passes them to `rt_sigqueueinfo`.
    pub fn from_bytes(signal: Signal, bytes: &[u8; SIGINFO_BYTES]) -> Self {
        let word = |offset: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[offset..offset + 4]);
            word
        };
        let mut value = [0; 8];
        value.copy_from_slice(&bytes[24..32]);
        Self {
            signal,
            errno: i32::from_ne_bytes(word(4)),
            code: i32::from_ne_bytes(word(8)),
            detail: Detail::Queued {
                pid: u32::from_ne_bytes(word(16)),
                uid: u32::from_ne_bytes(word(20)),
                value: u64::from_ne_bytes(value),
            },
        }
    }
}
