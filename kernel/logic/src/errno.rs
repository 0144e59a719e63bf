//! Linux error numbers.

use core::fmt;
use linux_raw_sys::errno as raw;

/// A Linux error number, 1 to 4095; what a failing call returns negated.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Errno(u16);

/// What a system call gives: a value of at most `isize::MAX`, or an error.
pub type SysResult = Result<usize, Errno>;

impl Errno {
    /// What the call's register holds: the number negated, in two's complement.
    pub const fn to_return(self) -> u64 {
        (self.0 as u64).wrapping_neg()
    }

    /// The number negated, as tables of results have it.
    pub const fn negated(self) -> i32 {
        -(self.0 as i32)
    }

    /// The error with a number of Linux's; `None` for what no program may see.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            // The range holds the kernel's own numbers out.
            #[expect(clippy::cast_possible_truncation, reason = "below 512")]
            1..512 => Some(Self(number as u16)),
            _ => None,
        }
    }
}

/// The register value of a call's result.
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

            /// The constant's name, or `errno` for one that this kernel never makes.
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
    /// The call was broken off by a signal and starts again unless a handler without `SA_RESTART`
    /// runs.
    pub const ERESTARTSYS: Self = Self(512);
    /// Like [`Self::ERESTARTSYS`], but it starts again whatever handler runs.
    pub const ERESTARTNOINTR: Self = Self(513);
    /// Like [`Self::ERESTARTSYS`], but any handler makes it `EINTR`.
    pub const ERESTARTNOHAND: Self = Self(514);
    /// Starts again through `restart_syscall`.
    pub const ERESTART_RESTARTBLOCK: Self = Self(516);
}

/// Errors that come with a signal for the caller; they never reach a user program either. Files know
/// no signals, so whoever called them raises it.
impl Errno {
    /// [`Self::EPIPE`] and `SIGPIPE`: nobody reads what is written.
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
