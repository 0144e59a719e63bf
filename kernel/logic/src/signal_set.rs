//! Sets of signals.

use core::fmt;

/// Signal numbers run from 1 to this.
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

/// What a signal does when the program has not said otherwise.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// Ends the process.
    Terminate,
    /// The same, with a core file where one is wanted.
    Dump,
    /// Nothing.
    Ignore,
    /// Stops the process.
    Stop,
    /// Continues a stopped process.
    Continue,
}

impl Signal {
    /// The signal with this number, if there is one.
    #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
    pub const fn new(number: u32) -> Option<Self> {
        if number >= 1 && number <= MAX_SIGNAL {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Its index in tables: the number less one.
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// Whether several of it queue up (`SIGRTMIN` and above).
    pub const fn is_realtime(self) -> bool {
        self.0 >= 32
    }

    /// Its default action.
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

/// A set of signals; bit N - 1 is signal N, as in the ABI.
#[derive(Copy, Clone, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct SigSet(pub u64);

impl SigSet {
    /// No signal.
    pub const EMPTY: Self = Self(0);
    /// Those that no program can block, ignore or handle.
    pub const UNBLOCKABLE: Self = Self::of(&[Signal::SIGKILL, Signal::SIGSTOP]);
    /// Those that stop a process by default.
    pub const STOP: Self = Self::of(&[
        Signal::SIGSTOP,
        Signal::SIGTSTP,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
    ]);
    /// Those that a faulting instruction raises: delivered before others.
    pub const SYNCHRONOUS: Self = Self::of(&[
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGILL,
        Signal::SIGTRAP,
        Signal::SIGFPE,
        Signal::SIGSYS,
    ]);

    /// The set of these.
    pub const fn of(signals: &[Signal]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < signals.len() {
            bits |= 1 << signals[i].index();
            i += 1;
        }
        Self(bits)
    }

    /// Whether the signal is in it.
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & (1 << signal.index()) != 0
    }

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a signal.
    pub const fn insert(&mut self, signal: Signal) {
        self.0 |= 1 << signal.index();
    }

    /// Takes a signal out.
    pub const fn remove(&mut self, signal: Signal) {
        self.0 &= !(1 << signal.index());
    }

    /// Those in either.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in this one and not in the other.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those in both.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// All that are not in it.
    pub const fn complement(self) -> Self {
        Self(!self.0)
    }

    /// The one to deliver first: synchronous ones, then the lowest number.
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

    /// The mask that a program may really set: without what cannot be blocked.
    pub const fn blockable(self) -> Self {
        self.without(Self::UNBLOCKABLE)
    }
}

impl fmt::Debug for SigSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigSet({:016x})", self.0)
    }
}
