//! The same groups in threads of one process (hackbench's `-T`).

use super::{Load, SIDE, Start, Taken, receive, send};
use crate::Failure;
use std::fs::File;
use std::io::{PipeReader, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The size of a thread's stack in bytes. There may be thousands of threads.
const STACK_BYTES: usize = 128 << 10;

type Task = JoinHandle<Result<(), Failure>>;

/// Runs all groups, and measures from the start signal to the end of the last thread.
pub(super) fn time<'a>(begin: &Start<'a>) -> Result<Taken<'a>, Failure> {
    let load = begin.load;
    let (gate, opener) = std::io::pipe().map_err(Failure::system("make a pipe"))?;
    let gate = Arc::new(gate);
    let (arrive, arrivals) = channel();
    let mut tasks = Vec::new();
    for _ in 0..load.groups {
        // A failure drops the opener, so that the threads end.
        group(load, &gate, &arrive, &mut tasks)?;
    }
    drop(arrive);
    wait_for(&arrivals, tasks.len())?;
    begin.measure(|| {
        drop(opener);
        let mut outcome = Ok(());
        for task in tasks {
            let ended = match task.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            outcome = outcome.and(ended);
        }
        outcome
    })
}

/// Waits until `count` threads have said that they are ready.
fn wait_for(arrivals: &Receiver<()>, count: usize) -> Result<(), Failure> {
    for _ in 0..count {
        arrivals
            .recv()
            .map_err(|_| Failure::Wrong("a thread ended before it was ready".to_owned()))?;
    }
    Ok(())
}

/// Starts the threads of one group. A receiver owns the end that it reads, and all senders share
/// the ends that they write, so that a thread whose peers have ended gets an error.
fn group(
    load: &Load,
    gate: &Arc<PipeReader>,
    arrive: &Sender<()>,
    tasks: &mut Vec<Task>,
) -> Result<(), Failure> {
    let rounds = load.rounds;
    let mut writers = Vec::with_capacity(SIDE);
    for _ in 0..SIDE {
        let (reader, writer) = load.channel.open()?;
        writers.push(writer);
        tasks.push(start(gate, arrive, move || receive(&reader, rounds))?);
    }
    let writers: Arc<Vec<File>> = Arc::new(writers);
    for sender in 0..SIDE {
        let writers = Arc::clone(&writers);
        tasks.push(start(gate, arrive, move || send(&writers, sender, rounds))?);
    }
    Ok(())
}

/// Starts a thread that says that it is ready, waits for the start signal, and then does `work`.
fn start(
    gate: &Arc<PipeReader>,
    arrive: &Sender<()>,
    work: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<Task, Failure> {
    let (gate, arrive) = (Arc::clone(gate), arrive.clone());
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let task = move || {
        // The receiving end lives until all threads are ready.
        let _ = arrive.send(());
        drop(arrive);
        // The gate opens when its only writer is closed. No byte is written.
        (&*gate)
            .read_to_end(&mut Vec::new())
            .map_err(Failure::system("wait for the other tasks"))?;
        work()
    };
    thread
        .spawn(task)
        .map_err(Failure::system("start a thread"))
}
