//! The work of a task on its way back to user mode, if its work word is not zero.

use super::{WaitStatus, exit_thread};
use crate::process;
use crate::process::signal::{self, Signal};
use crate::process::time::cpu_timers;
use crate::process::{ptrace, rseq};
use logic::own::Token;
use machine::arch::UserFrame;
use machine::sched;
use machine::sched::work;

/// Does the work that is due before the current task, whose token is `token`, returns to user mode:
/// switches to another task, ends the task, stops it, delivers signals. The exit paths call this if
/// the task's work word is not zero.
///
/// Each turn of the loop clears the bit that it serves. Bits that others set in the meantime are
/// served in further turns, so no work is left when user mode is entered.
#[cold]
pub fn exit_to_user(frame: &mut UserFrame, token: &mut Token) {
    let task = process::current();
    loop {
        // Acquire: the server of a bit sees all that was written before the bit was set.
        let bits = task.work();
        if bits & work::KILL != 0 {
            let status = task.process().group.lock().exit;
            exit_thread(status.unwrap_or(WaitStatus::exited(0)), frame, token);
        }
        if bits & work::CALL_END != 0 {
            ptrace::end_call(task, frame);
        } else if bits & work::RESCHED != 0 {
            sched::reschedule();
        } else if bits & work::STOP != 0 {
            signal::stand_still(task, frame);
        } else if bits & work::TRAP != 0 {
            ptrace::trap(task, frame);
        } else if bits & work::CPU_TIMER != 0 {
            task.clear_work(work::CPU_TIMER);
            cpu_timers::check(task);
        } else if bits & work::BROKEN_PIPE != 0 {
            task.clear_work(work::BROKEN_PIPE);
            signal::raise(Signal::SIGPIPE);
        } else if bits & work::RSEQ != 0 {
            rseq::serve(task, frame);
        } else if bits & (work::SIGNAL | work::RESTORE_MASK | work::RESTART) != 0 {
            task.clear_work(work::RESTART);
            signal::deliver(task, frame, token);
        } else {
            // Only bits that describe a state are left.
            debug_assert_eq!(bits & work::DUE, 0);
            return;
        }
    }
}
