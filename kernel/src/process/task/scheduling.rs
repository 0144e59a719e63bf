//! Scheduling parameters of threads, as programs set and see them, also of an ended main thread.

use super::table::{self, Table};
use super::{Process, Task};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use logic::credentials::Credentials;
use logic::errno::Errno;
use machine::sched::{self, realtime};
use machine::sync::SpinLock;

/// The scheduling parameters of a thread that system calls set.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// `SCHED_*`.
    pub(crate) policy: u32,
    /// Real-time priority: 1 to 99 for `SCHED_FIFO` and `SCHED_RR`, 0 for the others.
    pub(crate) priority: u32,
    /// Nice value, -20 to 19.
    pub(crate) nice: i32,
    /// Children start with the usual policy and no negative nice value (`SCHED_RESET_ON_FORK`).
    pub(crate) resets_on_fork: bool,
    /// `ioprio_set(2)`.
    pub(crate) io_priority: u32,
    /// The CPUs on which the thread may run, one bit each.
    pub(crate) cpus: u64,
}

impl Scheduling {
    /// The parameters of a new thread that inherits nothing.
    pub(crate) const USUAL: Self = Self {
        policy: raw::SCHED_NORMAL,
        priority: 0,
        nice: 0,
        resets_on_fork: false,
        io_priority: 0,
        cpus: u64::MAX,
    };

    /// Returns whether the policy is a real-time policy.
    pub(crate) fn is_realtime(&self) -> bool {
        matches!(self.policy, raw::SCHED_FIFO | raw::SCHED_RR)
    }

    /// Returns the parameters with which a child of a thread with these parameters starts.
    pub(crate) fn of_child(self) -> Self {
        let mut child = Self {
            resets_on_fork: false,
            ..self
        };
        if self.resets_on_fork {
            if self.is_realtime() {
                child.policy = raw::SCHED_NORMAL;
                child.priority = 0;
                child.nice = 0;
            } else {
                child.nice = self.nice.max(0);
            }
        }
        child
    }
}

/// The scheduling parameters of a live thread, and its inherited priority.
#[derive(Debug)]
pub(super) struct OwnScheduling(SpinLock<Inner>);

#[derive(Debug)]
struct Inner {
    own: Scheduling,
    /// The highest priority of the threads that wait for a lock that it owns; 0 if none has one.
    inherited: u32,
}

impl OwnScheduling {
    /// Returns the usual parameters, without an inherited priority.
    pub(super) const fn new() -> Self {
        Self(SpinLock::new(Inner {
            own: Scheduling::USUAL,
            inherited: 0,
        }))
    }
}

impl Task {
    /// Returns the scheduling parameters of the task.
    pub(crate) fn scheduling(&self) -> Scheduling {
        self.scheduling.0.lock().own
    }

    /// Returns the rank of the task among the waiters for an object. The lowest rank is served
    /// first. A real-time priority comes before all nice values.
    pub(crate) fn rank(&self) -> i32 {
        match self.priority() {
            0 => self.nice(),
            priority => -20 - priority.cast_signed(),
        }
    }

    /// Calls `change` with the scheduling parameters of the task, which `change` may modify. They
    /// are in force at once. `change` runs with a spin lock held.
    pub(crate) fn change_scheduling(&self, change: impl FnOnce(&mut Scheduling)) {
        // The closure never fails.
        let _ = self.try_change_scheduling(|own| {
            change(own);
            Ok(())
        });
    }

    /// Calls `change` with the scheduling parameters of this task, and stores the changed ones. If
    /// `change` fails, stores nothing and fails with its error. `change` runs with the lock held,
    /// so the parameters that it reads stay until the change is made.
    fn try_change_scheduling(
        &self,
        change: impl FnOnce(&mut Scheduling) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut inner = self.scheduling.0.lock();
        let mut new = inner.own;
        change(&mut new)?;
        inner.own = new;
        let own = &inner.own;
        sched::settle_weight(self);
        self.set_weight(own.nice, own.policy == raw::SCHED_IDLE);
        sched::settle_weight(self);
        self.affinity().set_mask(own.cpus);
        self.set_priority(&inner);
        Ok(())
    }

    /// Passes the effective priority to the scheduler.
    fn set_priority(&self, inner: &Inner) {
        let (own, inherited) = (&inner.own, inner.inherited);
        let round_robin = own.policy == raw::SCHED_RR;
        realtime::set(self, own.priority.max(inherited), round_robin);
    }

    /// Makes `priority` the real-time priority that the task inherits from its waiters. 0 means
    /// that it inherits none.
    pub(crate) fn inherit_priority(&self, priority: u32) {
        let mut inner = self.scheduling.0.lock();
        if inner.inherited != priority {
            inner.inherited = priority;
            self.set_priority(&inner);
        }
    }

    /// Returns whether the task inherits a priority from its waiters.
    pub(crate) fn has_inherited(&self) -> bool {
        self.scheduling.0.lock().inherited != 0
    }
}

/// The thread that a system call on scheduling refers to.
#[derive(Clone)]
pub(crate) enum Scheduled {
    /// A live thread.
    Live(Arc<Task>),
    /// The main thread of this process, which has ended. As on Linux its parameters can be set and
    /// read until the process is waited for.
    Ended(Arc<Process>),
}

impl Scheduled {
    /// Returns the thread with the number `tid`, live or an ended main thread. Returns `None` if
    /// there is none.
    pub(crate) fn find(tid: u32) -> Option<Self> {
        Self::find_in(&table::lock(), tid)
    }

    fn find_in(table: &Table, tid: u32) -> Option<Self> {
        let live = table.task(tid).cloned().map(Self::Live);
        live.or_else(|| table.process(tid).cloned().map(Self::Ended))
    }

    /// Returns the thread if it is live, or `None` if it has ended.
    pub(crate) fn task(&self) -> Option<&Arc<Task>> {
        match self {
            Self::Live(task) => Some(task),
            Self::Ended(_) => None,
        }
    }

    /// Returns the process of the thread.
    pub(crate) fn process(&self) -> &Arc<Process> {
        match self {
            Self::Live(task) => task.process(),
            Self::Ended(process) => process,
        }
    }

    /// Returns the credentials of the thread. If the thread has ended, they are its last ones.
    pub(crate) fn credentials(&self) -> Arc<Credentials> {
        match self {
            Self::Live(task) => task.credentials_for_others(),
            Self::Ended(process) => process.credentials(),
        }
    }

    /// Returns the scheduling parameters of the thread. If the thread has ended, they are its last
    /// ones.
    pub(crate) fn get(&self) -> Scheduling {
        match self {
            Self::Live(task) => task.scheduling(),
            Self::Ended(process) => *process.last_scheduling.lock(),
        }
    }

    /// Calls `change` with the scheduling parameters of the thread, which `change` may modify. No
    /// other call changes any of them until the new ones are in force. `change` runs with a spin
    /// lock held, and may take the locks of credentials and limits.
    ///
    /// # Errors
    /// Fails with the errors of `change`. No parameter changes then.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut Scheduling) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match self {
            Self::Live(task) => task.try_change_scheduling(change),
            Self::Ended(process) => {
                let mut last = process.last_scheduling.lock();
                let mut new = *last;
                change(&mut new)?;
                *last = new;
                Ok(())
            }
        }
    }
}
