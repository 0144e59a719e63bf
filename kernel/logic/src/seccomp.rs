//! The combined decision of system call filters (`seccomp(2)`): actions, their order, and stacked
//! filters.

use crate::bpf::{DATA_WORDS, Program};
use crate::errno::Errno;
use alloc::sync::Arc;

/// What a filter does with a system call (`SECCOMP_RET_*`), the strongest action first.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Action {
    /// Ends the process.
    KillProcess = 0x8000_0000,
    /// Ends the thread.
    KillThread = 0,
    /// Sends the thread `SIGSYS`.
    Trap = 0x0003_0000,
    /// Makes the call fail.
    Errno = 0x0005_0000,
    /// Lets a listener decide.
    Notify = 0x7fc0_0000,
    /// Lets the tracer decide.
    Trace = 0x7ff0_0000,
    /// Lets the call run, and logs it.
    Log = 0x7ffc_0000,
    /// Lets the call run.
    Allow = 0x7fff_0000,
}

/// Mask of the action in a filter's word (`SECCOMP_RET_ACTION_FULL`).
const ACTION: u32 = 0xffff_0000;

impl Action {
    /// All actions, in the order of the file `actions_avail`.
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

    /// Returns the action whose `SECCOMP_RET_*` value is `number`, or `None` if there is no such
    /// action.
    pub fn numbered(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|one| *one as u32 == number)
    }

    /// Returns the name of the action in the files of `/proc/sys/kernel/seccomp`.
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

/// A set of actions. It says which actions are logged.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Actions(pub u32);

impl Actions {
    /// The initial set: all actions but [`Action::Allow`], which is never logged.
    pub const NOTED_AT_FIRST: Self = Self(0x7f);

    /// Returns whether `action` is in the set.
    pub const fn contains(self, action: Action) -> bool {
        self.0 & action.bit() != 0
    }

    /// Returns the members of the set, in the order of [`Action::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Action> {
        let all = Action::ALL.into_iter();
        all.filter(move |action| self.contains(*action))
    }

    /// Returns the set of actions whose names are in `names`, separated by single spaces. As on
    /// Linux, parsing ends at two spaces in a row.
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

/// The decision of the filters of a thread about a system call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The word that the deciding filter returned. It has the action and 16 bits of data.
    pub word: u32,
    /// Whether that filter logs its actions (`SECCOMP_FILTER_FLAG_LOG`).
    pub logs: bool,
}

impl Verdict {
    /// The verdict that lets the call run.
    pub const ALLOW: Self = Self {
        word: Action::Allow as u32,
        logs: false,
    };

    /// Returns the action for the call. A word without a known action ends the process.
    pub fn action(self) -> Action {
        Action::numbered(self.word & ACTION).unwrap_or(Action::KillProcess)
    }

    /// Returns the data that accompanies the action: an error number, or a message.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the upper half is the action"
    )]
    pub const fn data(self) -> u16 {
        self.word as u16
    }

    /// Returns the rank of the action. A lower rank is stronger.
    const fn rank(self) -> i32 {
        (self.word & ACTION).cast_signed()
    }
}

/// The limit for the filters of a thread together, as on Linux: the sum of the lengths of their
/// programs ([`Program::translated`]), and [`EACH`] for every filter but the newest.
const MAX_PATH: usize = 1 << 15;
/// The amount that each filter adds to the length of its program when a newer filter is put on it
/// ([`MAX_PATH`]).
const EACH: usize = 4;

/// A filter, stacked on the earlier filters of the thread. All of them run, so no filter permits
/// what an older one refuses.
#[derive(Debug)]
pub struct Filter {
    program: Program,
    logs: bool,
    earlier: Option<Arc<Self>>,
    /// Number of filters in the stack, including this one.
    count: usize,
    /// The sum of the lengths of the programs in the stack, and [`EACH`] for each of them. It
    /// counts towards [`MAX_PATH`] when another filter is put on the stack.
    weight: usize,
}

impl Filter {
    /// Returns a filter that runs `program`, without earlier filters. If `logs`, its actions are
    /// logged.
    pub fn new(program: Program, logs: bool) -> Self {
        Self {
            weight: program.translated() + EACH,
            program,
            logs,
            earlier: None,
            count: 1,
        }
    }

    /// Stacks this filter, which has no earlier filters yet, on the filter `earlier`, or leaves it
    /// alone if that is `None`. Allocates and frees nothing, so a spin lock may be held.
    ///
    /// # Errors
    /// `ENOMEM` if the programs of all these filters together are too long.
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

    /// Returns the number of filters in the stack, including this one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns whether the filter's actions are logged.
    pub fn logs(&self) -> bool {
        self.logs
    }

    /// Returns the filter's program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns this filter and all earlier ones, the newest first. [`Self::put_upon`] limits their
    /// number.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |filter| filter.earlier.as_deref())
    }

    /// Returns whether `other` is one of the earlier filters on which this filter is stacked.
    pub fn stands_upon(&self, other: &Self) -> bool {
        self.chain()
            .skip(1)
            .any(|filter| core::ptr::eq(filter, other))
    }

    /// Returns the filter with this `number`; 0 is the oldest. Returns `None` if there are fewer
    /// filters.
    pub fn numbered(&self, number: usize) -> Option<&Self> {
        let newer = self.count.checked_sub(number)?.checked_sub(1)?;
        self.chain().nth(newer)
    }

    /// Runs all filters of the stack on `data`, which describes a system call. Returns the
    /// strongest verdict; among equally strong ones, that of the newest filter.
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
        // Drops the filters one by one without recursion: there may be thousands, and the stack is
        // small.
        let mut next = self.earlier.take();
        while let Some(mut filter) = next.and_then(Arc::into_inner) {
            next = filter.earlier.take();
        }
    }
}
