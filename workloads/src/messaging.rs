//! `messaging`: many tasks that wake one another, as in hackbench.
//!
//! A group has 20 senders and 20 receivers. Each sender sends messages of 100 bytes to each
//! receiver of its group. The time is mostly that of the scheduler, since every message may wake a
//! task. These are hackbench's own sizes (`-f 20 -s 100`), its channels (`AF_UNIX` stream sockets,
//! or pipes with `-p`), its tasks (processes, or threads with `-T`), and its number of rounds
//! (`-l 100`). It differs in three things: hackbench makes 10 groups where nothing is said, its
//! receivers do not check the messages, and it ends a task's wait by a byte and not by the end of a
//! pipe.

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use crate::reports::{Counter, Meanwhile, Part};
use crate::tasks::{Child, Gate, Kind};
use crate::{Experiment, Failure, first_use};
use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

mod threads;

/// The experiment `messaging`, with its arguments, help text and function: measures many processes
/// that wake one another by messages.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "messaging",
    usage: "[GROUPS [ROUNDSr]] [--pipes|--sockets] [--threads] [--memhog]",
    summary: "hackbench: groups of 20 senders and 20 receivers, over pipes and over sockets",
    help: "\
GROUPS is 4 by default (160 tasks). In each of ROUNDSr (100r) rounds every sender sends every
receiver of its group a message of 100 bytes, which the receiver checks. Pipes first, then
sockets (AF_UNIX, stream), or one of them. Tasks are processes, or with --threads threads of one
process. In hackbench's words that is -g GROUPS -l ROUNDS -f 20 -s 100, with -p for pipes and -T for
threads. With --memhog all free memory is touched once and freed just before the start signal, so that the kernel
has memory to report while messages go.

Prints the time from the start signal to the end of the last process (elapsed_s), and of a message
(message_ns), and how often a CPU went from one task to another meanwhile (switches): who takes turns
with whom is decided by chance, and most of the time is theirs. Where the kernel tells, also how often it reported
free memory to the host meanwhile (reports).",
    run,
};

const DEFAULT_GROUPS: u64 = 4;
const MAX_GROUPS: u64 = 150;
const DEFAULT_ROUNDS: u64 = 100;
/// Number of senders in a group, and of receivers.
const SIDE: usize = 20;
const MESSAGE_BYTES: usize = 100;

/// The kind of channel for the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    Pipes,
    Sockets,
}

impl Channel {
    fn name(self) -> &'static str {
        match self {
            Self::Pipes => "pipes",
            Self::Sockets => "sockets",
        }
    }

    /// Returns an end to read from and an end to write to.
    fn open(self) -> Result<(File, File), Failure> {
        let (reader, writer): (OwnedFd, OwnedFd) = match self {
            Self::Pipes => {
                let (reader, writer) = std::io::pipe().map_err(Failure::system("make a pipe"))?;
                (reader.into(), writer.into())
            }
            Self::Sockets => {
                let (here, there) =
                    UnixStream::pair().map_err(Failure::system("make a pair of sockets"))?;
                (here.into(), there.into())
            }
        };
        Ok((reader.into(), writer.into()))
    }
}

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let pipes = args::take_flag(&mut words, "--pipes");
    let sockets = args::take_flag(&mut words, "--sockets");
    let kind = if args::take_flag(&mut words, "--threads") {
        Kind::Threads
    } else {
        Kind::Processes
    };
    let memhog = args::take_flag(&mut words, "--memhog");
    args::no_more(&words, 2)?;
    let mut words = words.iter().map(String::as_str);
    let groups = words.next().map_or(Ok(DEFAULT_GROUPS), |w| {
        args::number(w, "groups", 1, MAX_GROUPS)
    })?;
    let rounds = match words.next().map(Until::parse).transpose()? {
        None => DEFAULT_ROUNDS,
        Some(Until::Rounds(rounds)) => rounds,
        Some(Until::Elapsed(_)) => {
            return Err(Failure::Usage(
                "the work is fixed: rounds (100r), not seconds".to_owned(),
            ));
        }
    };
    let counter = Counter::find();
    for channel in [Channel::Pipes, Channel::Sockets] {
        let wanted = match channel {
            Channel::Pipes => pipes || !sockets,
            Channel::Sockets => sockets || !pipes,
        };
        if wanted {
            let load = Load {
                channel,
                kind,
                groups,
                rounds,
                memhog,
            };
            let start = Start {
                load: &load,
                counter: counter.as_ref(),
            };
            let taken = match kind {
                Kind::Processes => time(&start)?,
                Kind::Threads => threads::time(&start)?,
            };
            report(&load, &taken, out)?;
            taken.reports.print(&labels(&load), out)?;
        }
    }
    Ok(())
}

/// What is done: the arguments of the experiment.
#[derive(Debug, Clone, Copy)]
struct Load {
    channel: Channel,
    kind: Kind,
    groups: u64,
    rounds: u64,
    /// Whether all free memory is used once before the start signal.
    memhog: bool,
}

/// The measurements for all groups.
struct Taken<'a> {
    ns: u64,
    switches: u64,
    reports: Meanwhile<'a>,
}

/// The preparation of a measurement whose tasks are ready.
struct Start<'a> {
    load: &'a Load,
    counter: Option<&'a Counter>,
}

impl<'a> Start<'a> {
    /// Uses memory if that is wanted, calls `go`, which gives the start signal and returns when all
    /// tasks have ended, and measures that. Fails if `go` fails.
    fn measure(&self, go: impl FnOnce() -> Result<(), Failure>) -> Result<Taken<'a>, Failure> {
        if self.load.memhog {
            first_use::of_all_memory()?;
        }
        let reports = Part::begin(self.counter);
        let before = switches()?;
        let begin = monotonic_ns();
        go()?;
        let ns = monotonic_ns() - begin;
        Ok(Taken {
            ns,
            switches: switches()?.saturating_sub(before),
            reports: reports.end(),
        })
    }
}

/// Returns the labels of the figures of `load`.
fn labels(load: &Load) -> Labels {
    let mut labels = Labels::from([
        ("over", load.channel.name().to_owned()),
        ("groups", load.groups.to_string()),
        ("rounds", load.rounds.to_string()),
    ]);
    if load.kind == Kind::Threads {
        labels.insert("kind", load.kind.name().to_owned());
    }
    labels
}

fn report(load: &Load, taken: &Taken<'_>, out: &mut Output) -> Result<(), Failure> {
    let &Load {
        channel,
        kind,
        groups,
        rounds,
        memhog: _,
    } = load;
    let labels = labels(load);
    let mode = match kind {
        Kind::Processes => "process",
        Kind::Threads => "threaded",
    };
    let (descriptors, tasks) = (2 * SIDE, groups * 2 * SIDE as u64);
    out.say(&format!(
        "Running in {mode} mode with {groups} groups using {descriptors} file descriptors each (== {tasks} tasks)"
    ))?;
    out.say(&format!(
        "Each sender will pass {} messages of {MESSAGE_BYTES} bytes, over {}",
        rounds * SIDE as u64,
        channel.name()
    ))?;
    out.say(&format!("Time: {:.3}", ratio(taken.ns, 1_000_000_000)))?;
    let messages = groups * rounds * (SIDE * SIDE) as u64;
    out.result(&Metric {
        name: "elapsed_s",
        value: ratio(taken.ns, 1_000_000_000),
        unit: "s",
        better: Better::Lower,
        labels: labels.clone(),
    })?;
    out.result(&Metric {
        name: "switches",
        value: ratio(taken.switches, 1),
        unit: "switches",
        better: Better::Lower,
        labels: labels.clone(),
    })?;
    out.result(&Metric {
        name: "message_ns",
        value: ratio(taken.ns, messages),
        unit: "ns",
        better: Better::Lower,
        labels,
    })
}

/// Returns the number of context switches since boot.
fn switches() -> Result<u64, Failure> {
    let stat = std::fs::read_to_string("/proc/stat").map_err(Failure::system("/proc/stat"))?;
    stat.lines()
        .find_map(|line| line.strip_prefix("ctxt ")?.parse().ok())
        .ok_or_else(|| Failure::Unsupported("ctxt in /proc/stat".to_owned()))
}

/// Runs all groups, and measures from the start signal to the end of the last process.
fn time<'a>(start: &Start<'a>) -> Result<Taken<'a>, Failure> {
    let load = start.load;
    let gate = Gate::new()?;
    let mut children = Vec::new();
    for _ in 0..load.groups {
        group(load.channel, load.rounds, &gate, &mut children)?;
    }
    gate.ready(children.len())?;
    start.measure(|| {
        gate.open();
        for child in children {
            let status = child.wait()?;
            if !status.success() {
                return Err(Failure::Wrong(format!("a process ended with {status}")));
            }
        }
        Ok(())
    })
}

/// Forks the processes of one group.
///
/// Each child closes the ends that it does not use; the cells let it take them out. A process whose
/// peer has died then gets an error and does not wait for ever.
fn group(
    channel: Channel,
    rounds: u64,
    gate: &Gate,
    children: &mut Vec<Child>,
) -> Result<(), Failure> {
    let mut readers = Vec::with_capacity(SIDE);
    let mut writers = Vec::with_capacity(SIDE);
    for _ in 0..SIDE {
        let (reader, writer) = channel.open()?;
        readers.push(reader);
        writers.push(writer);
    }
    let (readers, writers) = (Cell::new(readers), Cell::new(writers));
    for receiver in 0..SIDE {
        children.push(Child::fork(|| {
            drop(writers.take());
            let own = readers.take().swap_remove(receiver);
            gate.wait()?;
            receive(&own, rounds)
        })?);
    }
    for sender in 0..SIDE {
        children.push(Child::fork(|| {
            drop(readers.take());
            gate.wait()?;
            send(&writers.take(), sender, rounds)
        })?);
    }
    Ok(())
}

/// Sends every receiver one message in each round.
fn send(writers: &[File], sender: usize, rounds: u64) -> Result<(), Failure> {
    let name = u8::try_from(sender).expect("20 senders");
    let message = [name; MESSAGE_BYTES];
    for _ in 0..rounds {
        for mut writer in writers {
            writer
                .write_all(&message)
                .map_err(Failure::system("send a message"))?;
        }
    }
    Ok(())
}

/// Receives the messages of all senders. Fails with `Wrong` if one is damaged or there are too many
/// from a sender.
fn receive(mut reader: &File, rounds: u64) -> Result<(), Failure> {
    let mut left = [rounds; SIDE];
    let mut message = [0; MESSAGE_BYTES];
    for _ in 0..rounds * SIDE as u64 {
        reader
            .read_exact(&mut message)
            .map_err(Failure::system("receive a message"))?;
        let [name, .., last] = message;
        let of_sender = left
            .get_mut(usize::from(name))
            .filter(|left| name == last && **left > 0)
            .ok_or_else(|| Failure::Wrong(format!("a message from {name} ends with {last}")))?;
        *of_sender -= 1;
    }
    Ok(())
}
