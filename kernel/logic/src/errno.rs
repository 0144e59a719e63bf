//! Linux error numbers.

use core::fmt;
use linux_raw_sys::errno as raw;

/// A Linux error number, 1 to 4095. A failing call returns it negated.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Errno(u16);

/// The result of a system call: a value of at most `isize::MAX`, or an error.
pub type SysResult = Result<usize, Errno>;

impl Errno {
    /// Returns the value of the call's result register: the number negated, in two's complement.
    pub const fn to_return(self) -> u64 {
        (self.0 as u64).wrapping_neg()
    }

    /// Returns the number negated, as completion queues and similar tables show it.
    pub const fn negated(self) -> i32 {
        -(self.0 as i32)
    }

    /// Returns the error with Linux's `number`. Returns `None` for 0 and for the kernel-only
    /// numbers from 512 on, which no program may see.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            // The range excludes the kernel-only numbers.
            #[expect(clippy::cast_possible_truncation, reason = "below 512")]
            1..512 => Some(Self(number as u16)),
            _ => None,
        }
    }
}

/// Returns the value of the result register of a call with the result `result`.
pub fn to_register(result: SysResult) -> u64 {
    match result {
        Ok(value) => value as u64,
        Err(errno) => errno.to_return(),
    }
}

macro_rules! numbers {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[expect(clippy::cast_possible_truncation, reason = "asserted")]
                #[doc = concat!("Linux's `", stringify!($name), "`.")]
                pub const $name: Self = {
                    assert!(raw::$name > 0 && raw::$name < 4096);
                    Self(raw::$name as u16)
                };
            )*

            /// Returns the constant's name, or `errno` for a number without a constant in this
            /// list.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    _ => "errno",
                }
            }
        }
    };
}

numbers! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENOMSG EIDRM ENODATA ETIME EPROTO EBADMSG EOVERFLOW EBADFD ELIBBAD EILSEQ EUSERS ENOTSOCK EDESTADDRREQ
    EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT
    EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS
    EISCONN ENOTCONN ESHUTDOWN ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS
    ESTALE EDQUOT ETOOMANYREFS ECANCELED EOWNERDEAD ENOTRECOVERABLE
}

/// Kernel-only numbers of Linux's restart protocol; they never reach a user program.
impl Errno {
    /// A signal interrupted the call. The call starts again unless a handler without `SA_RESTART`
    /// runs.
    pub const ERESTARTSYS: Self = Self(512);
    /// Like [`Self::ERESTARTSYS`], but the call starts again after every handler.
    pub const ERESTARTNOINTR: Self = Self(513);
    /// Like [`Self::ERESTARTSYS`], but the call fails with `EINTR` after every handler.
    pub const ERESTARTNOHAND: Self = Self(514);
    /// The call starts again through `restart_syscall`.
    pub const ERESTART_RESTARTBLOCK: Self = Self(516);
}

/// Errors that come with a signal for the caller. They never reach a user program either. Files
/// send no signals, so the caller of the file's function raises the signal.
impl Errno {
    /// [`Self::EPIPE`] and `SIGPIPE`: a pipe or socket without a reader was written to.
    pub const BROKEN_PIPE: Self = Self(600);
    /// [`Self::EFBIG`] and `SIGXFSZ`: the file would grow beyond `RLIMIT_FSIZE`.
    pub const FILE_SIZE_LIMIT: Self = Self(601);
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
