//! The registers of user code, as tracers see them: `struct user_regs_struct` and the
//! floating-point images.

use super::tracee::{self, State as Tracing};
use crate::process::TaskRef;
use crate::process::task::Task;
use logic::errno::Errno;
use machine::arch::fpu::TraceImage;
use machine::arch::frame::{RFLAGS_FIXED, RFLAGS_IF, RFLAGS_TF, USER_CS, USER_SS};
use machine::arch::{self, USER_END, UserFrame};
use machine::sched::{self, work};

/// The number of words in `struct user_regs_struct`.
pub(crate) use crate::process::task::REGISTERS as WORDS;
/// Flags that a tracer may set: CF PF AF ZF SF TF DF OF NT RF AC.
const FLAGS: u64 = 0x0005_4dd5;
/// Linux's selectors of 64-bit programs.
const SELECTORS: [(usize, u64); 6] = [
    (CS, USER_CS as u64),
    (SS, USER_SS as u64),
    (23, 0),
    (24, 0),
    (25, 0),
    (26, 0),
];
const ORIG_RAX: usize = 15;
const RIP: usize = 16;
const CS: usize = 17;
const RFLAGS: usize = 18;
const SS: usize = 20;
const FS_BASE: usize = 21;
const GS_BASE: usize = 22;

/// The registers of a tracee during a ptrace-stop, as its tracer sees and sets them.
#[derive(Debug)]
pub(crate) struct Registers {
    frame: UserFrame,
    pub(super) floats: TraceImage,
    /// The tracer has set the floating-point registers.
    floats_set: bool,
}

impl Registers {
    /// Copies the registers of the current task: those in `frame`, the frame of the entry from user
    /// mode, and those in the floating-point state.
    pub(super) fn of_current(frame: &mut UserFrame) -> Self {
        let floats = sched::current().fpu_trace_image(frame);
        Self {
            frame: frame.clone(),
            floats,
            floats_set: false,
        }
    }

    /// Loads the registers as the tracer left them into `frame`, the frame of the current task
    /// `task`, and into its floating-point state, before the task continues.
    pub(super) fn load(self, task: TaskRef, frame: &mut UserFrame) {
        let user = task.user_state().expect("a user task is traced");
        *frame = self.frame;
        if frame.rip >= USER_END {
            // As in `UserFrame::sanitize`: the program faults.
            frame.rip = USER_END;
        }
        if self.floats_set {
            sched::current().fpu_load(&self.floats, frame);
        }
        arch::set_fs_base(user.fs_base());
        arch::set_gs_base_user(user.gs_base());
    }

    /// Returns the frame of the entry from user mode.
    pub(crate) fn frame(&mut self) -> &mut UserFrame {
        &mut self.frame
    }

    /// Returns all general registers of `tracee`, in the order of `struct user_regs_struct`.
    pub(crate) fn words(&mut self, tracee: &Task, state: &Tracing) -> [u64; WORDS] {
        let user = tracee.user_state().expect("a user task is traced");
        let mut words = user.registers(self.frame());
        if state.forced_step {
            words[RFLAGS] &= !RFLAGS_TF;
        }
        words
    }

    /// Sets general register `n`, an index into `struct user_regs_struct`, to `value`.
    ///
    /// # Errors
    /// Fails with `EIO` if there is no such register, or if user code cannot have `value` in it.
    pub(crate) fn set_word(
        &mut self,
        tracee: &Task,
        state: &mut Tracing,
        n: usize,
        value: u64,
    ) -> Result<(), Errno> {
        let user = tracee.user_state().expect("a user task is traced");
        if let Some((_, selector)) = SELECTORS.iter().find(|(at, _)| *at == n) {
            // Selectors have 16 bits, and programs have no others than these.
            return if value & 0xffff == *selector {
                Ok(())
            } else {
                Err(Errno::EIO)
            };
        }
        let frame = self.frame();
        let place = match n {
            0 => &mut frame.r15,
            1 => &mut frame.r14,
            2 => &mut frame.r13,
            3 => &mut frame.r12,
            4 => &mut frame.rbp,
            5 => &mut frame.rbx,
            6 => &mut frame.r11,
            7 => &mut frame.r10,
            8 => &mut frame.r9,
            9 => &mut frame.r8,
            10 => &mut frame.rax,
            11 => &mut frame.rcx,
            12 => &mut frame.rdx,
            13 => &mut frame.rsi,
            14 => &mut frame.rdi,
            ORIG_RAX => &mut frame.orig_rax,
            RIP => &mut frame.rip,
            RFLAGS => {
                let mut flags = frame.rflags & !FLAGS | value & FLAGS;
                // A step flag in `value` is the program's own from now on. Without one, the
                // tracer's flag stays.
                if value & RFLAGS_TF != 0 {
                    state.forced_step = false;
                } else if state.forced_step {
                    flags |= RFLAGS_TF;
                }
                frame.rflags = flags | RFLAGS_IF | RFLAGS_FIXED;
                return Ok(());
            }
            19 => &mut frame.rsp,
            FS_BASE | GS_BASE => {
                if value >= USER_END {
                    return Err(Errno::EIO);
                }
                user.lend_base(n - FS_BASE, value);
                return Ok(());
            }
            _ => return Err(Errno::EIO),
        };
        *place = value;
        Ok(())
    }

    /// Makes `tracee` stop after its next instruction. `sets_flags` says that this instruction
    /// writes the flags register.
    pub(super) fn step(&mut self, tracee: &Task, state: &mut Tracing, sets_flags: bool) {
        tracee.add_work(work::STEPS);
        let frame = self.frame();
        // As on Linux, a flag that is cleared after a step counts as cleared by the program.
        let own = (frame.rflags & RFLAGS_TF != 0 || state.steps) && !state.forced_step;
        frame.rflags |= RFLAGS_TF;
        state.forced_step = !own && !sets_flags;
        state.steps = true;
    }

    /// Makes `tracee` run without single steps.
    pub(super) fn run(&mut self, tracee: &Task, state: &mut Tracing) {
        if state.steps {
            state.steps = false;
            tracee.clear_work(work::STEPS);
            if core::mem::take(&mut state.forced_step) {
                self.frame().rflags &= !RFLAGS_TF;
            }
        }
    }

    /// Returns the floating-point registers.
    pub(crate) fn floats(&self) -> &TraceImage {
        &self.floats
    }

    /// Returns the floating-point registers for the tracer to set. They are loaded when the tracee
    /// continues.
    pub(crate) fn floats_to_set(&mut self) -> &mut TraceImage {
        self.floats_set = true;
        &mut self.floats
    }
}

/// Clears the step flag in `frame` if the tracer of `task` has set it, before a handler's frame is
/// made. So neither the handler nor its frame has the flag. Returns whether a tracer steps the
/// thread.
pub(crate) fn end_step(task: TaskRef, frame: &mut UserFrame) -> bool {
    if task.work() & work::STEPS == 0 {
        return false;
    }
    let mut state = task.tracee().lock();
    task.clear_work(work::STEPS);
    let forced = match state.as_deref_mut() {
        Some(state) => {
            state.steps = false;
            core::mem::take(&mut state.forced_step)
        }
        // The tracer has gone during a step.
        None => true,
    };
    if forced {
        frame.rflags &= !RFLAGS_TF;
    }
    state.is_some()
}

/// Clears the step flag in `frame`, the frame of a child of the current thread `task`, if a tracer
/// has set it. So the child does not step.
pub(crate) fn leave_step(task: TaskRef, frame: &mut UserFrame) {
    if task.work() & work::STEPS != 0 {
        let state = task.tracee().lock();
        if state.as_ref().is_none_or(|state| state.forced_step) {
            frame.rflags &= !RFLAGS_TF;
        }
    }
}

/// Returns the call number, the six arguments, the stack pointer and the instruction pointer of the
/// blocked thread `task`, in a ptrace-stop as its tracer has set them. Returns `None` if it is a
/// kernel thread, runs, or ran during the read.
pub(crate) fn of_blocked(task: &Task) -> Option<[u64; 9]> {
    let frame = match tracee::stopped_frame(task) {
        Some(frame) => frame,
        None => task.blocked_frame()?,
    };
    Some([
        frame.orig_rax,
        frame.rdi,
        frame.rsi,
        frame.rdx,
        frame.r10,
        frame.r8,
        frame.r9,
        frame.rsp,
        frame.rip,
    ])
}
