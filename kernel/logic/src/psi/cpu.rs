//! The stalls of one CPU's tasks for memory, reads and writes.
//!
//! A task belongs to the CPU that it runs on, waits for, or ran on last before it went to sleep.
//! The run queues count how long tasks wait for the CPU itself.

use super::{Stall, Times};

/// What a CPU runs.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub enum Running {
    /// Nothing.
    #[default]
    Idle,
    /// A task that makes progress.
    Productive,
    /// A task that stalls for memory, because it reclaims some.
    Stalled,
}

/// The numbers of a CPU's tasks in each state. A number can be negative for a moment, while a task
/// that goes to sleep is woken.
#[derive(Copy, Clone, Default, Debug)]
pub struct Tasks {
    /// Tasks that sleep until a read or write ends.
    pub in_io: i32,
    /// Tasks that stall for memory, asleep or not.
    pub in_memory: i32,
    /// Tasks among `in_memory` that can run.
    pub in_memory_runnable: i32,
    /// Tasks that wait for the CPU.
    pub waiting: usize,
    /// What the CPU runs.
    pub running: Running,
}

/// A set of [`Stall`] kinds, and a bit for a CPU that idles while tasks stall.
type States = u8;

const IDLES_BESIDE: States = 1 << Stall::COUNT;

impl Tasks {
    /// Returns whether any task stalls for memory, or sleeps until a read or write ends.
    pub fn any(&self) -> bool {
        self.in_io > 0 || self.in_memory > 0
    }

    fn states(&self) -> States {
        let bit = |stall: Stall, holds: bool| if holds { 1 << stall as u8 } else { 0 };
        let runnable = i64::try_from(self.waiting).unwrap_or(i64::MAX - 1)
            + i64::from(self.running != Running::Idle);
        let none_else = runnable <= self.in_memory_runnable.max(0).into();
        let memory = self.in_memory > 0;
        let beside = self.any() && runnable == 0;
        bit(Stall::IoSome, self.in_io > 0)
            | bit(Stall::IoFull, self.in_io > 0 && runnable == 0)
            | bit(Stall::MemorySome, memory)
            | bit(
                Stall::MemoryFull,
                // While the running task reclaims memory, no other task makes progress on the CPU.
                memory && (none_else || self.running == Running::Stalled),
            )
            | if beside { IDLES_BESIDE } else { 0 }
    }
}

/// A CPU's tasks and the times of their stalls.
#[derive(Copy, Clone, Debug)]
pub struct Cpu {
    tasks: Tasks,
    states: States,
    /// When the current `states` began, in nanoseconds.
    since: u64,
    times: Times,
    /// Time that the CPU idled while tasks stalled, in nanoseconds.
    idled_beside: u64,
}

impl Cpu {
    /// Returns an idle CPU without tasks that stall.
    pub const fn new() -> Self {
        Self {
            tasks: Tasks {
                in_io: 0,
                in_memory: 0,
                in_memory_runnable: 0,
                waiting: 0,
                running: Running::Idle,
            },
            states: 0,
            since: 0,
            times: [0; Stall::COUNT],
            idled_beside: 0,
        }
    }

    /// Calls `change` with the numbers of the CPU's tasks, to update them, at the time `now` in
    /// nanoseconds. Returns whether any task stalls afterwards.
    pub fn change(&mut self, now: u64, change: impl FnOnce(&mut Tasks)) -> bool {
        change(&mut self.tasks);
        let states = self.tasks.states();
        if states != self.states {
            (self.times, self.idled_beside) = self.times(now);
            self.states = states;
            self.since = now;
        }
        self.tasks.any()
    }

    /// Returns the time of each kind of stall up to `now`, and the time for which the CPU idled
    /// while tasks stalled. All times are in nanoseconds.
    pub fn times(&self, now: u64) -> (Times, u64) {
        // Another CPU's clock may be ahead.
        let open = now.saturating_sub(self.since);
        let mut times = self.times;
        for (stall, time) in times.iter_mut().enumerate() {
            if self.states & (1 << stall) != 0 {
                *time += open;
            }
        }
        let beside = self.states & IDLES_BESIDE != 0;
        (times, self.idled_beside + if beside { open } else { 0 })
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}
