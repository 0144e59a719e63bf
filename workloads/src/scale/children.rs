//! Part `children`: child processes that are alive.

use super::{BEFORE, Figures, Part, TIMES};
use crate::Failure;
use crate::clock::{monotonic_ns, ratio};
use crate::tasks::{Child, Gate};

/// The part `children` of the experiment `scale`: its numbers of objects and its function.
pub(super) const PART: Part = Part {
    name: "children",
    counts: "children",
    usual: [100, 6_400],
    most: 20_000,
    run,
};

fn run(number: u64) -> Result<Figures, Failure> {
    with_children(number, || {
        let (fork, end) = fork_and_wait()?;
        Ok(vec![("fork_ns", fork), ("end_and_wait_ns", end)])
    })
}

/// Forks `number` child processes, runs `work` while they wait, and then lets them end. Returns the
/// figures of `work`. Fails if a child cannot be forked or fails, or if `work` fails.
pub(super) fn with_children(
    number: u64,
    work: impl FnOnce() -> Result<Figures, Failure>,
) -> Result<Figures, Failure> {
    let gate = Gate::new()?;
    let mut children = Vec::new();
    for _ in 0..number {
        children.push(Child::fork(|| gate.wait())?);
    }
    gate.ready(children.len())?;
    let figures = work()?;
    gate.open();
    for child in children {
        let status = child.wait()?;
        if !status.success() {
            return Err(Failure::Wrong(format!("a process ended with {status}")));
        }
    }
    Ok(figures)
}

/// Forks many children that end at once, one after the other. Returns two mean times in
/// nanoseconds: that of a fork in the parent, and that from there until the child has ended and was
/// waited for. Fails if a fork fails or a child's exit status is not 0.
pub(super) fn fork_and_wait() -> Result<(f64, f64), Failure> {
    let (mut fork, mut end) = (0, 0);
    for index in 0..BEFORE + TIMES {
        let begin = monotonic_ns();
        let child = Child::fork(|| Ok(()))?;
        let forked = monotonic_ns();
        let status = child.wait()?;
        let ended = monotonic_ns();
        if !status.success() {
            return Err(Failure::Wrong(format!("a process ended with {status}")));
        }
        if index >= BEFORE {
            fork += forked - begin;
            end += ended - forked;
        }
    }
    Ok((ratio(fork, TIMES), ratio(end, TIMES)))
}
