//! `ptrace(2)`: one thread, the tracer, looks into others, its tracees, and lets them go step by step.
//!
//! - `tracee`: what a thread knows of its tracer, and what the tracer reaches while it stands.
//! - `stop`: a tracee stands: for a signal, at a call, for an event, with its process.
//! - `attach`: who traces whom, and how that begins and ends.
//! - `resume`: a tracee goes on, by steps or from call to call.
//! - `registers`: what user code holds, as tracers see it.
//! - `breakpoints`: the CPU's debug registers.
//!
//! Locks: who traces whom changes under the process table's lock. What a tracee knows of it has a lock of
//! its own, inside all others but run queues'. A tracee stands while its `place` is set: it is taken away
//! under that lock, and a tracer looks at registers under it, so nobody goes on under a tracer's hands.
//! Nothing sleeps or touches user memory meanwhile.

pub(crate) mod attach;
pub(crate) mod breakpoints;
pub(crate) mod registers;
pub(crate) mod resume;
mod stop;
mod tracee;

pub(crate) use attach::{
    LeaderGone, adopt, attach, detach, end_of_tracee, end_of_tracer, has_room, interrupt,
    is_leader_now, leader_taken_over, notify_seized, reap, seize, trace_me,
};
pub(crate) use stop::{
    clone_event, end_call, enter_call, event, executed, exit_event, filter_stop, group_stop,
    handler_ready, sees_group, signal_stop, suspends_filters, trap, vfork_done,
};
pub(crate) use tracee::{Report, Tracee, at_stop, report, stands, tracer_of, trapping_ends};
