//! `/proc/PID/syscall`: the call that a thread waits in.

use super::super::subject::Subject;
use crate::fs::text::Text;
use crate::process::ptrace;
use crate::process::task::Process;
use alloc::sync::Arc;
use core::fmt::{Result as Written, Write};

/// Shows `/proc/PID/syscall`: the number and the arguments of the call, the stack pointer and the
/// instruction pointer. Shows `running` if the thread does not wait.
pub(super) fn syscall(text: &mut Text, subject: &Subject, process: &Arc<Process>) -> Written {
    let Some(task) = subject.task(process) else {
        return text.write_str("-1 0x0 0x0\n"); // It has ended.
    };
    let Some(words) = ptrace::registers::of_blocked(&task) else {
        return text.write_str("running\n");
    };
    let [number, arguments @ .., stack, place] = words;
    // The number is -1 if the thread entered the kernel otherwise than by a call.
    write!(text, "{}", number.cast_signed())?;
    if number != u64::MAX {
        for argument in arguments {
            write!(text, " {argument:#x}")?;
        }
    }
    writeln!(text, " {stack:#x} {place:#x}")
}
