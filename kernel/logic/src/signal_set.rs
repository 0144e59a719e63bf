//! Sets of signals.

use core::fmt;

/// The highest signal number; the lowest is 1.
pub const MAX_SIGNAL: u32 = 64;

/// A signal number, 1 to [`MAX_SIGNAL`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

macro_rules! signals {
    ($($name:ident = $number:literal)*) => {
        impl Signal {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                #[allow(dead_code, reason = "the list is whole; not all are sent or treated apart")]
                pub const $name: Self = Self($number);
            )*
        }
    };
}

signals! {
    SIGHUP = 1 SIGINT = 2 SIGQUIT = 3 SIGILL = 4 SIGTRAP = 5 SIGABRT = 6 SIGBUS = 7 SIGFPE = 8
    SIGKILL = 9 SIGUSR1 = 10 SIGSEGV = 11 SIGUSR2 = 12 SIGPIPE = 13 SIGALRM = 14 SIGTERM = 15
    SIGSTKFLT = 16 SIGCHLD = 17 SIGCONT = 18 SIGSTOP = 19 SIGTSTP = 20 SIGTTIN = 21 SIGTTOU = 22
    SIGURG = 23 SIGXCPU = 24 SIGXFSZ = 25 SIGVTALRM = 26 SIGPROF = 27 SIGWINCH = 28 SIGIO = 29
    SIGPWR = 30 SIGSYS = 31
}

/// The effect of a signal without a handler.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// Ends the process.
    Terminate,
    /// Ends the process, and writes a core file if enabled.
    Dump,
    /// Nothing.
    Ignore,
    /// Stops the process.
    Stop,
    /// Continues a stopped process.
    Continue,
}

impl Signal {
    /// Returns the signal with this `number`, or `None` if there is none.
    #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
    pub const fn new(number: u32) -> Option<Self> {
        if number >= 1 && number <= MAX_SIGNAL {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Returns the signal's number.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Returns the signal's index in tables: its number minus one.
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// Returns whether several instances of the signal queue up (`SIGRTMIN` and above).
    pub const fn is_realtime(self) -> bool {
        self.0 >= 32
    }

    /// Returns the signal's default action.
    pub const fn default_action(self) -> DefaultAction {
        match self {
            Self::SIGCHLD | Self::SIGURG | Self::SIGWINCH => DefaultAction::Ignore,
            Self::SIGCONT => DefaultAction::Continue,
            Self::SIGSTOP | Self::SIGTSTP | Self::SIGTTIN | Self::SIGTTOU => DefaultAction::Stop,
            Self::SIGQUIT | Self::SIGILL | Self::SIGTRAP | Self::SIGABRT | Self::SIGBUS => {
                DefaultAction::Dump
            }
            Self::SIGFPE | Self::SIGSEGV | Self::SIGXCPU | Self::SIGXFSZ | Self::SIGSYS => {
                DefaultAction::Dump
            }
            _ => DefaultAction::Terminate,
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal {}", self.0)
    }
}

/// A set of signals. Bit N - 1 is signal N, as in the ABI.
#[derive(Copy, Clone, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct SigSet(pub u64);

impl SigSet {
    /// No signal.
    pub const EMPTY: Self = Self(0);
    /// The signals that no program can block, ignore or handle.
    pub const UNBLOCKABLE: Self = Self::of(&[Signal::SIGKILL, Signal::SIGSTOP]);
    /// The signals that stop a process by default.
    pub const STOP: Self = Self::of(&[
        Signal::SIGSTOP,
        Signal::SIGTSTP,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
    ]);
    /// The signals that a faulting instruction raises. They are delivered before others.
    pub const SYNCHRONOUS: Self = Self::of(&[
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGILL,
        Signal::SIGTRAP,
        Signal::SIGFPE,
        Signal::SIGSYS,
    ]);

    /// Returns the set of `signals`.
    pub const fn of(signals: &[Signal]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < signals.len() {
            bits |= 1 << signals[i].index();
            i += 1;
        }
        Self(bits)
    }

    /// Returns whether `signal` is in the set.
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & (1 << signal.index()) != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds `signal` to the set.
    pub const fn insert(&mut self, signal: Signal) {
        self.0 |= 1 << signal.index();
    }

    /// Removes `signal` from the set.
    pub const fn remove(&mut self, signal: Signal) {
        self.0 &= !(1 << signal.index());
    }

    /// Returns the signals in `self`, in `other`, or in both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the signals of this set that are not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the signals that are both in `self` and in `other`.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns all signals that are not in `self`.
    pub const fn complement(self) -> Self {
        Self(!self.0)
    }

    /// Returns the signal to deliver first: synchronous ones before others, then the lowest number.
    /// Returns `None` if the set is empty.
    #[expect(clippy::cast_possible_truncation, reason = "below 64")]
    pub const fn first(self) -> Option<Signal> {
        let urgent = self.intersection(Self::SYNCHRONOUS);
        let bits = if urgent.is_empty() { self.0 } else { urgent.0 };
        if bits == 0 {
            None
        } else {
            Some(Signal(bits.trailing_zeros() as u8 + 1))
        }
    }

    /// Returns the mask that a program may set: the set without the signals that cannot be blocked.
    pub const fn blockable(self) -> Self {
        self.without(Self::UNBLOCKABLE)
    }
}

impl fmt::Debug for SigSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigSet({:016x})", self.0)
    }
}
