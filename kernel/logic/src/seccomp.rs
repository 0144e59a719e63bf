//! What filters of calls say together (`seccomp(2)`): actions, their order, and filters that stand upon others.

use crate::bpf::{DATA_WORDS, Program};
use crate::errno::Errno;
use alloc::sync::Arc;

/// What becomes of a call (`SECCOMP_RET_*`), the strongest first.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Action {
    /// The process ends.
    KillProcess = 0x8000_0000,
    /// The thread ends.
    KillThread = 0,
    /// The thread gets `SIGSYS`.
    Trap = 0x0003_0000,
    /// The call fails.
    Errno = 0x0005_0000,
    /// A listener decides.
    Notify = 0x7fc0_0000,
    /// The tracer decides.
    Trace = 0x7ff0_0000,
    /// The call is made, and noted.
    Log = 0x7ffc_0000,
    /// The call is made.
    Allow = 0x7fff_0000,
}

/// The part of a filter's word that is an action (`SECCOMP_RET_ACTION_FULL`).
const ACTION: u32 = 0xffff_0000;

impl Action {
    /// All, in the order of `actions_avail`.
    pub const ALL: [Self; 8] = [
        Self::KillProcess,
        Self::KillThread,
        Self::Trap,
        Self::Errno,
        Self::Notify,
        Self::Trace,
        Self::Log,
        Self::Allow,
    ];

    /// The action of this number; `None`: there is none.
    pub fn numbered(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|one| *one as u32 == number)
    }

    /// Its name in `/proc/sys/kernel/seccomp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KillProcess => "kill_process",
            Self::KillThread => "kill_thread",
            Self::Trap => "trap",
            Self::Errno => "errno",
            Self::Notify => "user_notif",
            Self::Trace => "trace",
            Self::Log => "log",
            Self::Allow => "allow",
        }
    }

    const fn bit(self) -> u32 {
        match self {
            Self::KillProcess => 1,
            Self::KillThread => 1 << 1,
            Self::Trap => 1 << 2,
            Self::Errno => 1 << 3,
            Self::Notify => 1 << 4,
            Self::Trace => 1 << 5,
            Self::Log => 1 << 6,
            Self::Allow => 1 << 7,
        }
    }
}

/// A set of actions: those that are noted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Actions(pub u32);

impl Actions {
    /// All but [`Action::Allow`], which never is noted.
    pub const NOTED_AT_FIRST: Self = Self(0x7f);

    /// Whether it has this one.
    pub const fn contains(self, action: Action) -> bool {
        self.0 & action.bit() != 0
    }

    /// Its members, in the order of [`Action::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Action> {
        let all = Action::ALL.into_iter();
        all.filter(move |action| self.contains(*action))
    }

    /// The set of these names, with a space between two. As on Linux it ends at two spaces.
    ///
    /// # Errors
    /// `EINVAL` for an unknown name, and for `allow`.
    pub fn named(names: &str) -> Result<Self, Errno> {
        let mut set = 0;
        for name in names.split(' ').take_while(|name| !name.is_empty()) {
            let action = Self::NOTED_AT_FIRST.iter().find(|one| one.name() == name);
            set |= action.ok_or(Errno::EINVAL)?.bit();
        }
        Ok(Self(set))
    }
}

/// What filters say of a call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The word of the filter that decided.
    pub word: u32,
    /// That filter wants what it does noted (`SECCOMP_FILTER_FLAG_LOG`).
    pub logs: bool,
}

impl Verdict {
    /// The call is made.
    pub const ALLOW: Self = Self {
        word: Action::Allow as u32,
        logs: false,
    };

    /// What becomes of the call. A word that is no action ends the process.
    pub fn action(self) -> Action {
        Action::numbered(self.word & ACTION).unwrap_or(Action::KillProcess)
    }

    /// What the filter says besides: an error, or a message.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the upper half is the action"
    )]
    pub const fn data(self) -> u16 {
        self.word as u16
    }

    /// Less is stronger.
    const fn rank(self) -> i32 {
        (self.word & ACTION).cast_signed()
    }
}

/// What is counted for all filters of a thread, at most.
const MAX_PATH: usize = 1 << 15;
/// What a filter counts for besides its instructions.
const EACH: usize = 4;

/// A filter, and those that it stands upon. All of them are asked, so none takes away what an older one refuses.
#[derive(Debug)]
pub struct Filter {
    program: Program,
    logs: bool,
    earlier: Option<Arc<Self>>,
    /// How many there are with it.
    count: usize,
    /// What they count for one that stands upon it.
    weight: usize,
}

impl Filter {
    /// A filter that stands alone. `logs`: what it does is noted.
    pub fn new(program: Program, logs: bool) -> Self {
        Self {
            weight: program.translated() + EACH,
            program,
            logs,
            earlier: None,
            count: 1,
        }
    }

    /// Puts it, which stands alone, upon others. Nothing is allocated or freed, so a spin lock may be held.
    ///
    /// # Errors
    /// `ENOMEM`: together they are too long.
    pub fn put_upon(&mut self, earlier: Option<Arc<Self>>) -> Result<(), Errno> {
        let (count, weight) = earlier
            .as_ref()
            .map_or((0, 0), |earlier| (earlier.count, earlier.weight));
        let total = self.program.translated() + weight;
        if total > MAX_PATH {
            return Err(Errno::ENOMEM);
        }
        self.earlier = earlier;
        self.count = count + 1;
        self.weight = total + EACH;
        Ok(())
    }

    /// How many filters there are with it.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether what it does is noted.
    pub fn logs(&self) -> bool {
        self.logs
    }

    /// Its program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// It and all that it stands upon, the newest first; at most so many as [`Self::put_upon`] lets there be.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |filter| filter.earlier.as_deref())
    }

    /// Whether it stands upon this one.
    pub fn stands_upon(&self, other: &Self) -> bool {
        self.chain()
            .skip(1)
            .any(|filter| core::ptr::eq(filter, other))
    }

    /// The filter with this number, 0 the oldest.
    pub fn numbered(&self, number: usize) -> Option<&Self> {
        let newer = self.count.checked_sub(number)?.checked_sub(1)?;
        self.chain().nth(newer)
    }

    /// What all say of a call: the strongest word counts, of equally strong ones the newest filter's.
    pub fn judge(&self, data: &[u32; DATA_WORDS]) -> Verdict {
        let mut verdict = Verdict::ALLOW;
        for filter in self.chain() {
            let said = Verdict {
                word: filter.program.run(data),
                logs: filter.logs,
            };
            if said.rank() < verdict.rank() {
                verdict = said;
            }
        }
        verdict
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // One after the other: there may be thousands, and the stack is small.
        let mut next = self.earlier.take();
        while let Some(mut filter) = next.and_then(Arc::into_inner) {
            next = filter.earlier.take();
        }
    }
}
