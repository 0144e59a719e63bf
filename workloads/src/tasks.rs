//! Runs the same work in several processes or threads at once.

use crate::Failure;
use crate::pauses::{ChildPipes, Pause, Pauses, PipePairs};
use std::cell::{Cell, RefCell};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Barrier;

/// Whether tasks that run at once are processes or threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Processes: each task has an address space of its own.
    Processes,
    /// Threads: all tasks share one address space.
    Threads,
}

impl Kind {
    /// Returns `processes` or `threads`, for a label of figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Threads => "threads",
        }
    }
}

/// The largest number of tasks that an experiment runs at once.
pub(crate) const MAX_TASKS: u64 = 256;
/// The longest message of a process to its parent, in bytes.
const MAX_MESSAGE: u64 = 4096;

/// Runs `work(0)` to `work(count - 1)` at once and returns their figures in this order.
///
/// A single task runs in the calling thread, and pauses by calling `pauses.turn`. Each of several
/// tasks must make `pauses.count` pauses, by calling the function that it gets, unless it fails. In
/// a pause a task waits until all others pause, too. For processes `pauses.turn` is called then;
/// threads only wait for each other.
///
/// # Errors
/// The failure of the first failed task in this order. In a child process, all failures but
/// [`Failure::Unsupported`] become [`Failure::Wrong`]. Also fails if a process cannot be forked or
/// ends early, or if `pauses.turn` fails; the other processes are then killed. A thread's panic is
/// passed on.
pub(crate) fn run<const N: usize>(
    kind: Kind,
    count: usize,
    mut pauses: Pauses<'_>,
    work: impl Fn(usize, Pause<'_>) -> Result<[u64; N], Failure> + Sync,
) -> Result<Vec<[u64; N]>, Failure> {
    match kind {
        _ if count == 1 => {
            let turn = RefCell::new(pauses.turn);
            Ok(vec![work(0, &|| (turn.borrow_mut())())?])
        }
        Kind::Processes => in_processes(count, &mut pauses, work),
        Kind::Threads => in_threads(count, pauses.count, &work),
    }
}

fn in_threads<const N: usize>(
    count: usize,
    pauses: u64,
    work: &(impl Fn(usize, Pause<'_>) -> Result<[u64; N], Failure> + Sync),
) -> Result<Vec<[u64; N]>, Failure> {
    let together = Barrier::new(count);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|index| {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    let meetings = Meetings {
                        together,
                        left: Cell::new(pauses),
                    };
                    work(index, &|| {
                        meetings.meet();
                        Ok(())
                    })
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

/// The pauses in which a thread waits for all others.
struct Meetings<'a> {
    together: &'a Barrier,
    /// The number of pauses that are left.
    left: Cell<u64>,
}

impl Meetings<'_> {
    /// Waits until all threads pause. Does nothing if no pause is left.
    fn meet(&self) {
        if let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            self.together.wait();
        }
    }
}

impl Drop for Meetings<'_> {
    /// Makes the pauses that are left. Without that, the other threads would wait for a thread that
    /// failed.
    fn drop(&mut self) {
        while self.left.get() > 0 {
            self.meet();
        }
    }
}

fn in_processes<const N: usize>(
    count: usize,
    pauses: &mut Pauses<'_>,
    work: impl Fn(usize, Pause<'_>) -> Result<[u64; N], Failure>,
) -> Result<Vec<[u64; N]>, Failure> {
    let gate = Gate::new()?;
    let pairs = PipePairs::new(if pauses.count > 0 { count } else { 0 })?;
    let mut children = Vec::with_capacity(count);
    for index in 0..count {
        let (result, answer) = std::io::pipe().map_err(Failure::system("make a pipe"))?;
        let child = Child::fork(|| {
            let pipes = if pauses.count > 0 {
                Some(pairs.child_pipes(index))
            } else {
                None
            };
            gate.wait()?;
            let pause = || pipes.as_ref().map_or(Ok(()), ChildPipes::pause);
            send(&answer, work(index, &pause))
        })?;
        children.push((child, result));
    }
    gate.ready(count)?;
    gate.open();
    pairs.serve(pauses)?;
    children
        .into_iter()
        .map(|(child, result)| receive(child, result))
        .collect()
}

/// A gate that holds forked processes back until all of them are ready.
///
/// The gate opens when the last copy of its write end is closed; no byte is written. The ends are
/// in cells, since a child closes the copies that it got from `fork`.
pub(crate) struct Gate {
    gate: PipeReader,
    opener: Cell<Option<PipeWriter>>,
    arrivals: PipeReader,
    arrive: Cell<Option<PipeWriter>>,
}

impl Gate {
    /// Creates a closed gate, before the children are forked. Fails with `System` if a pipe cannot
    /// be created.
    pub(crate) fn new() -> Result<Self, Failure> {
        let (gate, opener) = std::io::pipe().map_err(Failure::system("make a pipe"))?;
        let (arrivals, arrive) = std::io::pipe().map_err(Failure::system("make a pipe"))?;
        Ok(Self {
            gate,
            opener: Cell::new(Some(opener)),
            arrivals,
            arrive: Cell::new(Some(arrive)),
        })
    }

    /// Reports that the child is ready, and waits until the parent opens the gate or ends. Call it
    /// once, in the child; a second call panics. Fails with `System` if a pipe fails.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        drop(self.opener.take());
        let mut arrive = self.arrive.take().expect("a child arrives once");
        arrive
            .write_all(&[1])
            .map_err(Failure::system("tell that a task is there"))?;
        drop(arrive);
        (&self.gate)
            .read_to_end(&mut Vec::new())
            .map_err(Failure::system("wait for the other tasks"))?;
        Ok(())
    }

    /// Waits until `count` children are ready. Call it in the parent, after the last fork. Fails
    /// with `System` if a child ended before it was ready.
    pub(crate) fn ready(&self, count: usize) -> Result<(), Failure> {
        drop(self.arrive.take());
        (&self.arrivals)
            .read_exact(&mut vec![0; count])
            .map_err(Failure::system("wait until all tasks are there"))
    }

    /// Opens the gate, so that the children continue. Call it in the parent. Dropping the gate
    /// opens it too.
    pub(crate) fn open(&self) {
        drop(self.opener.take());
    }
}

/// The first byte of a child's message: figures follow, or the text of an error.
const FIGURES: u8 = 0;
const SYSTEM: u8 = 1;
const UNSUPPORTED: u8 = 2;

/// Sends the figures or the error of a task to the parent.
fn send<const N: usize>(
    mut answer: &PipeWriter,
    outcome: Result<[u64; N], Failure>,
) -> Result<(), Failure> {
    let message = match outcome {
        Ok(figures) => {
            let mut bytes = vec![FIGURES];
            bytes.extend(figures.iter().flat_map(|figure| figure.to_le_bytes()));
            bytes
        }
        Err(Failure::Unsupported(what)) => [&[UNSUPPORTED], what.as_bytes()].concat(),
        Err(other) => [&[SYSTEM], other.to_string().as_bytes()].concat(),
    };
    answer
        .write_all(&message)
        .map_err(Failure::system("send a task's figures"))
}

/// Returns the figures of a child, or its error. Waits for its end.
fn receive<const N: usize>(child: Child, result: PipeReader) -> Result<[u64; N], Failure> {
    let mut message = Vec::new();
    result
        .take(MAX_MESSAGE)
        .read_to_end(&mut message)
        .map_err(Failure::system("read a task's figures"))?;
    let status = child.wait()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match message.split_first() {
        Some((&FIGURES, bytes)) if bytes.len() == N * 8 => {
            let mut figures = [0; N];
            for (figure, bytes) in figures.iter_mut().zip(bytes.chunks_exact(8)) {
                *figure = u64::from_le_bytes(bytes.try_into().expect("chunks of 8 bytes"));
            }
            Ok(figures)
        }
        Some((&SYSTEM, bytes)) => Err(Failure::Wrong(text(bytes))),
        Some((&UNSUPPORTED, bytes)) => Err(Failure::Unsupported(text(bytes))),
        _ => Err(Failure::Wrong(format!(
            "a task ended with {status} before it had finished"
        ))),
    }
}

/// A forked process. If this value is dropped before [`Child::wait`], the process is killed and
/// waited for.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
}

impl Child {
    /// Forks. The child runs `work` and exits: with status 0, with 1 and a line on standard error
    /// if `work` failed, or with 101 if it panicked. It is killed if the parent ends first. Fails
    /// with `System` if `fork` fails.
    ///
    /// The process must have one thread only, as this program has when it forks.
    pub(crate) fn fork(work: impl FnOnce() -> Result<(), Failure>) -> Result<Self, Failure> {
        // SAFETY: no other thread exists that could hold a lock which the child would need, and no
        // output is left in a buffer that both would write.
        match unsafe { libc::fork() } {
            -1 => Err(Failure::last_os("fork")),
            0 => {
                // Otherwise an orphan would run on to its end. If the call fails, that is no harm.
                // SAFETY: the call takes two numbers only.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let work = std::panic::AssertUnwindSafe(work);
                let status = match std::panic::catch_unwind(work) {
                    Ok(Ok(())) => 0,
                    Ok(Err(failure)) => {
                        eprintln!("a task failed: {failure}");
                        1
                    }
                    Err(_) => 101,
                };
                // SAFETY: ends the process at once. No destructor of the parent's values runs.
                unsafe { libc::_exit(status) }
            }
            pid => Ok(Self { pid }),
        }
    }

    /// Waits for the end of the process and returns its exit status, also if the process failed.
    /// Fails with `System` if `wait4` fails.
    pub(crate) fn wait(self) -> Result<ExitStatus, Failure> {
        self.wait_with_times().map(|(status, _)| status)
    }

    /// Waits for the end of the process and returns its exit status and its CPU times. Fails with
    /// `System` if `wait4` fails.
    pub(crate) fn wait_with_times(self) -> Result<(ExitStatus, Times), Failure> {
        let pid = self.pid;
        std::mem::forget(self);
        reap(pid)
    }
}

/// The CPU time of a process and of the children that it waited for, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the process is a child of this process and has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        let _ = reap(self.pid);
    }
}

/// Waits for the end of a child process.
fn reap(pid: libc::pid_t) -> Result<(ExitStatus, Times), Failure> {
    let mut status = 0;
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: `status` and `usage` are writable memory for the answer.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } == pid {
            let times = Times {
                user_ns: nanoseconds(usage.ru_utime),
                system_ns: nanoseconds(usage.ru_stime),
            };
            return Ok((ExitStatus::from_raw(status), times));
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(Failure::System {
                what: "wait for a task".to_owned(),
                source: error,
            });
        }
    }
}

/// Returns a process time in nanoseconds. It is never negative.
fn nanoseconds(time: libc::timeval) -> u64 {
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_usec.unsigned_abs() * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn threads_pause_together_and_wait_for_none_that_failed() {
        let at_work = AtomicU32::new(0);
        let work = |index, pause: Pause<'_>| {
            at_work.fetch_add(1, Ordering::SeqCst);
            pause()?;
            let met = u64::from(at_work.load(Ordering::SeqCst));
            pause()?;
            Ok([met, index as u64])
        };
        let pauses = Pauses {
            count: 2,
            turn: &mut || Ok(()),
        };
        let figures = run(Kind::Threads, 3, pauses, work).expect("they meet");
        assert_eq!(figures, [[3, 0], [3, 1], [3, 2]]);
        let one_fails = |index, pause: Pause<'_>| {
            if index == 1 {
                return Err(Failure::Wrong("no memory".to_owned()));
            }
            pause()?;
            pause()?;
            Ok([0])
        };
        let pauses = Pauses {
            count: 2,
            turn: &mut || Ok(()),
        };
        let failed = run(Kind::Threads, 3, pauses, one_fails);
        assert!(matches!(failed, Err(Failure::Wrong(_))));
    }
}
