//! `ptrace(2)`: one thread, the tracer, inspects others, its tracees, and runs them step by step.
//! While it may do so, the tracee is in a ptrace-stop.
//!
//! - `tracee`: a tracee's tracing state, and what the tracer may access during a ptrace-stop.
//! - `stop`: the ptrace-stops: for a signal, at a call, for an event, with the process.
//! - `attach`: the relation of tracer and tracee, its beginning and its end.
//! - `resume`: a tracee continues, by single steps or from call to call.
//! - `registers`: the registers of user code, as tracers see them.
//! - `breakpoints`: the CPU's debug registers.
//!
//! Locks: the relation of tracer and tracee changes under the process table's lock. A tracee's
//! tracing state has its own lock, inside all others but run queues'. A tracee copies its
//! registers into that state at the beginning of a ptrace-stop, and takes them out at the end. So a
//! tracee does not continue while its tracer accesses it, even if it is killed. The holder of the
//! lock does not sleep and does not touch user memory.

pub(crate) mod attach;
pub(crate) mod breakpoints;
pub(crate) mod registers;
pub(crate) mod resume;
mod stop;
mod tracee;

pub(crate) use attach::{
    LeaderGone, adopt, attach, credentials_for_program, detach, end_of_tracee, end_of_tracer,
    interrupt, leader_taken_over, note_new_leader, notify_seized, reap, reserve_tracee, seize,
    trace_me,
};
pub(crate) use stop::{
    clone_event, end_call, enter_call, event, executed, exit_event, filter_stop, group_stop,
    handler_ready, sees_group, signal_stop, suspends_filters, trap, vfork_done,
};
pub(crate) use tracee::{Report, Tracee, at_stop, report, stands, tracer_of, trapping_ends};
