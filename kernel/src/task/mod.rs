//! Tasks (threads) and processes.

use crate::arch::UserFrame;
use alloc::sync::Arc;

/// A thread of a process, or of the kernel.
#[derive(Debug)]
pub struct Task {}

impl Task {
    /// Whether a signal waits that the task would act on: what breaks off interruptible waits.
    pub fn signal_pending(&self) -> bool {
        unimplemented!()
    }

    /// Whether SIGKILL or the end of the whole process is due: what breaks off killable waits.
    pub fn killed(&self) -> bool {
        unimplemented!()
    }

    /// The process that the task belongs to.
    pub fn process(&self) -> &Arc<Process> {
        unimplemented!()
    }

    /// Thread number.
    pub fn tid(&self) -> u32 {
        unimplemented!()
    }
}

/// A process: one or more tasks with one address space, files and signal handlers.
#[derive(Debug)]
pub struct Process {}

impl Process {
    /// Process number.
    pub fn pid(&self) -> u32 {
        unimplemented!()
    }
}

/// Calls `each` for every process, in order of their numbers, until it gives false.
pub fn for_each_process(mut each: impl FnMut(&Arc<Process>) -> bool) {
    let _ = &mut each;
    unimplemented!()
}

/// The process with this number.
pub fn find(pid: u32) -> Option<Arc<Process>> {
    let _ = pid;
    unimplemented!()
}

/// Sends a signal to the process group of the program that the VM runs (the host's Ctrl-C).
pub fn signal_program(signo: u32) {
    let _ = signo;
    unimplemented!()
}

/// Does what is due before the current task returns to user mode: reschedule, signals. The exit
/// paths call it when the task's work word is not zero.
pub fn exit_to_user(frame: &mut UserFrame) {
    let _ = frame;
    unimplemented!()
}

/// Memory is out: kills the largest process, naming it and `reason` on the console. False when
/// there is nobody to kill.
pub fn oom_kill(reason: &str) -> bool {
    let _ = reason;
    unimplemented!()
}

/// Starts the first tasks on the first CPU and enters the idle loop; `/.ebb/argv` becomes PID 2.
pub fn start() -> ! {
    unimplemented!()
}
