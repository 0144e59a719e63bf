//! Runs guests as child processes, `ebb run …`, and collects their output.

use super::balloon::Balloon;
use super::child::{Line, Message, Terminator, listen, read_timeline, spawn};
use super::cpus::Cpus;
use super::experiments::{Call, Case};
use super::give_back_mode::GiveBackMode;
use super::interrupt::Interrupt;
use super::meter::{Meter, child_of};
use super::plan::Step;
use super::schema::{Better, Event, Guest, Outcome, Run, TurnCost, What};
use super::scratch::Scratch;
use super::shape::Shape;
use crate::failure::Failure;
use crate::qemu::cpu_time;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The interval at which the interrupt flag is checked and the progress is drawn.
const TICK: Duration = Duration::from_millis(100);
/// The time after which a guest counts as hung, in addition to [`TIMEOUT_FACTOR`] times the
/// expected time of its program. A stock kernel may need several attempts, and the host may be
/// busy.
const TIMEOUT: Duration = Duration::from_secs(900);
/// The multiple of a program's expected time after which its guest counts as hung.
const TIMEOUT_FACTOR: u32 = 20;
/// The maximum number of lines of a program that are kept.
const LINES_MAX: usize = 100_000;
/// The number of lines of stderr that are kept for an error message.
const ERROR_LINES: usize = 24;
/// The exit status with which `ebb-workloads` ends if the guest lacks something.
const STATUS_UNSUPPORTED: i32 = 3;

/// The settings that all runs of a comparison of the two kernels share.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) scratch: &'a Scratch,
    /// The program to start as QEMU.
    pub(crate) qemu: &'a Path,
    /// The value of `--accel`.
    pub(crate) accel: &'static str,
    /// The value of `--kernel` for the stock guest.
    pub(crate) linux: Option<OsString>,
    pub(crate) interrupt: &'a Interrupt,
}

/// The output of a guest so far.
#[derive(Default)]
struct Output {
    /// The lines of stdout.
    lines: Vec<Line>,
    /// The last lines of stderr.
    errors: VecDeque<String>,
}

/// The state of a guest, as far as its output shows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// It boots, or works in its turn.
    Works,
    /// It waits for the turn in which its next round begins.
    BetweenRounds,
    /// It waits for a turn in the middle of a round.
    Rests,
    /// Its outputs are closed.
    Ended,
}

/// A running guest.
struct Running {
    guest: Guest,
    round: u32,
    shape: Shape,
    call: Call,
    words: Vec<OsString>,
    /// The file of the timeline.
    timeline: PathBuf,
    /// The file of the record.
    record: PathBuf,
    /// The CPUs of the host to which the guest is restricted.
    host_cpus: Vec<u32>,
    child: Child,
    meter: Option<Meter>,
    /// The program's stdin. A line gives the guest its turn.
    stdin: Option<ChildStdin>,
    messages: Receiver<Message>,
    output: Output,
    state: State,
    started: Instant,
    /// The time from the start to the end, once the guest has ended.
    wall: Duration,
    /// The time after the start at which the guest counts as hung.
    limit: Duration,
    /// The cost of each round, if guests take turns.
    rounds: Vec<TurnCost>,
    terminator: Terminator,
}

impl Runner<'_> {
    /// Runs `case` as `step` says: starts the guests, gives them their turns if they take turns,
    /// and waits for their end. Returns a run of each guest, in the order of the step. Calls `tick`
    /// at least ten times a second. Ends guests that hang, and all guests if a signal arrives.
    ///
    /// # Errors
    /// If a child process cannot be started or waited for. Guests that run already are ended if one
    /// cannot be started. A child that fails is not an error but a run with the outcome `Failed`.
    pub(crate) fn run(
        &self,
        case: &Case,
        step: &Step,
        tick: &mut dyn FnMut(),
    ) -> Result<Vec<Run>, Failure> {
        let taking_turns = case.pace().takes_turns();
        let cpus = Cpus::hold(taking_turns.then_some(case.shape(step.boot).cpus));
        let mut running = Vec::new();
        for guest in &step.guests {
            match self.start(case, step, *guest, &cpus) {
                Ok(started) => running.push(started),
                Err(failure) => {
                    // Guests that started already would wait for turns that never come, so they are
                    // ended.
                    for mut other in running {
                        other.stdin = None;
                        self.until(&mut other, State::Ended, tick);
                        let _ = other.child.wait();
                    }
                    return Err(failure);
                }
            }
        }
        drop(cpus);
        if taking_turns {
            self.take_turns(&mut running, step.rounds, tick);
        }
        for guest in &mut running {
            guest.stdin = None;
        }
        let mut runs = Vec::new();
        for mut guest in running {
            self.until(&mut guest, State::Ended, tick);
            let status = guest.child.wait().map_err(|source| Failure::Setup {
                what: "waiting for a child process",
                source,
            })?;
            runs.push(self.finish(case, guest, status));
        }
        Ok(runs)
    }

    /// Starts one guest.
    fn start(
        &self,
        case: &Case,
        step: &Step,
        guest: Guest,
        cpus: &Cpus,
    ) -> Result<Running, Failure> {
        let shape = case.shape(step.boot);
        let call = case.call(step.boot);
        let file = |what: &str| self.scratch.file(&format!("{}-{what}", guest.name()));
        let (timeline, record) = (file("timeline.jsonl"), file("record.json"));
        for path in [&timeline, &record] {
            let _ = std::fs::remove_file(path);
        }
        let mut work = case.guess();
        if shape.icount {
            work = work.max(case.counted_guess());
        }
        let work = work * TIMEOUT_FACTOR * step.rounds;
        let limit = TIMEOUT + work * u32::try_from(step.guests.len()).unwrap_or(1);
        let mut words = self.words(guest, shape, &call, limit, [&timeline, &record]);
        if let Some(boot) = case.experiment.boot_words.of(guest) {
            words.splice(1..1, ["--append".into(), boot.into()]);
        }
        for file in case.files() {
            words.splice(1..1, ["--file".into(), file.into()]);
        }
        if let Some(disk) = case.disk() {
            // Inserted behind `run`.
            words.splice(1..1, ["--disk".into(), disk.into()]);
        }
        if shape.icount {
            let seed = (step.boot - 1).to_string();
            words.splice(1..1, ["--icount".into(), "--seed".into(), seed.into()]);
        }
        if let Some(pages) = shape.give_back.host_pages() {
            words.splice(1..1, ["--host-pages".into(), pages.into()]);
        }
        let mut balloon = None;
        if shape.give_back == GiveBackMode::Balloon {
            let socket = file("balloon");
            let _ = std::fs::remove_file(&socket);
            let more = Balloon::arguments(&socket);
            words.splice(1..1, more.map(OsString::from));
            balloon = Some(Balloon::new(socket));
        }
        let executable = std::env::current_exe().map_err(|source| Failure::Setup {
            what: "the path of ebb itself",
            source,
        })?;
        let started = Instant::now();
        let turns = case.pace().takes_turns();
        let mut child = spawn(&executable, &words, turns).map_err(|source| Failure::Setup {
            what: "a child process",
            source,
        })?;
        Ok(Running {
            guest,
            round: step.boot,
            shape,
            call,
            words,
            host_cpus: cpus.held.clone(),
            stdin: child.stdin.take(),
            messages: listen(&mut child, &timeline, balloon),
            meter: (case.is_metered()).then(|| Meter::start(child.id(), timeline.clone())),
            child,
            timeline,
            record,
            output: Output::default(),
            state: State::Works,
            started,
            wall: Duration::ZERO,
            limit: limit * 2,
            rounds: Vec::new(),
            terminator: Terminator::default(),
        })
    }

    /// Lets the guests take turns until all rounds are done. The order is reversed in every other
    /// round.
    fn take_turns(&self, running: &mut [Running], rounds: u32, tick: &mut dyn FnMut()) {
        // The guests boot at the same time; the boot is not timed.
        for guest in running.iter_mut() {
            self.until(guest, State::BetweenRounds, tick);
        }
        for round in 0..rounds {
            for guest in running.iter_mut() {
                guest.begin_round();
            }
            loop {
                let mut all_wait = true;
                for place in 0..running.len() {
                    let place = if round % 2 == 0 {
                        place
                    } else {
                        running.len() - 1 - place
                    };
                    let guest = &mut running[place];
                    if guest.state == State::Rests {
                        all_wait = false;
                        self.give_turn(guest, tick);
                    }
                }
                if all_wait || self.interrupt.signal().is_some() {
                    break;
                }
            }
            if running.iter().all(|guest| guest.state == State::Ended)
                || self.interrupt.signal().is_some()
            {
                return;
            }
        }
    }

    /// Lets a guest work until it waits again, and adds the cost to its current round.
    fn give_turn(&self, guest: &mut Running, tick: &mut dyn FnMut()) {
        let (since, cpu) = (Instant::now(), guest.qemu_cpu());
        guest.state = State::Works;
        // The write fails only if the guest has ended, which is noticed elsewhere.
        if let Some(stdin) = &mut guest.stdin {
            let _ = stdin.write_all(b"\n");
        }
        self.until(guest, State::Rests, tick);
        let spent = cpu
            .zip(guest.qemu_cpu())
            .map(|(before, after)| after.saturating_sub(before).as_secs_f64());
        if let Some(cost) = guest.rounds.last_mut() {
            cost.wall_s += since.elapsed().as_secs_f64();
            cost.qemu_cpu_s = cost.qemu_cpu_s.zip(spent).map(|(sum, more)| sum + more);
        }
    }

    /// Creates a run of the report from a child's output.
    fn finish(&self, case: &Case, guest: Running, status: ExitStatus) -> Run {
        let (program, arguments) = match &guest.call {
            Call::Workloads(words) => ("ebb-workloads", words.clone()),
            Call::Script { script, .. } => ("sh", vec!["-c".to_owned(), script.clone()]),
        };
        let words = guest.words.iter();
        let command = std::iter::once("ebb".to_owned())
            .chain(words.map(|word| word.to_string_lossy().into_owned()))
            .collect();
        let arguments = std::iter::once(program.to_owned())
            .chain(arguments)
            .collect();
        let mut run = Run {
            experiment: case.experiment.name.to_owned(),
            arguments,
            guest: guest.guest,
            give_back: guest.shape.give_back,
            icount: guest.shape.icount,
            cpus: guest.shape.cpus,
            memory_bytes: guest.shape.memory.bytes(),
            round: guest.round,
            command,
            record: std::fs::read(&guest.record)
                .ok()
                .and_then(|bytes| serde_json::from_slice(&bytes).ok()),
            events: Vec::new(),
            turns: guest.rounds,
            host_cpus: guest.host_cpus,
            timeline: read_timeline(&guest.timeline),
            expenses: guest.meter.map(Meter::finish).unwrap_or_default(),
            outcome: Outcome::Ok,
            error: None,
        };
        match guest.call {
            Call::Workloads(_) => judge(&mut run, &guest.output, status),
            Call::Script { says, returns, .. } => {
                judge_script(
                    &mut run,
                    &guest.output,
                    status,
                    (&says, returns),
                    guest.wall,
                );
                // The timelines of a hundred boots show nothing that one does not.
                run.timeline.clear();
            }
        }
        if let Some(signal) = self.interrupt.signal() {
            run.outcome = Outcome::Failed;
            run.error = Some(format!("cut short by signal {signal}"));
        }
        run
    }

    /// Returns the arguments of `ebb run`.
    fn words(
        &self,
        guest: Guest,
        shape: Shape,
        call: &Call,
        limit: Duration,
        [timeline, record]: [&PathBuf; 2],
    ) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["run".into()];
        let mut option = |name: &str, value: OsString| words.extend([OsString::from(name), value]);
        option("--root", "none".into());
        if guest == Guest::Linux {
            option(
                "--kernel",
                self.linux.clone().unwrap_or_else(|| "linux".into()),
            );
        }
        option("--accel", self.accel.into());
        option("-m", shape.memory.to_string().into());
        option("-c", shape.cpus.to_string().into());
        option("--give-back", shape.give_back.mode().name().into());
        option("--qemu", self.qemu.into());
        option("--timeline", timeline.into());
        option("--record", record.into());
        option("--timeout", limit.as_secs().to_string().into());
        words.push("--".into());
        match call {
            Call::Workloads(program) => {
                words.push((&self.scratch.workloads).into());
                words.push("--json".into());
                words.extend(program.iter().map(OsString::from));
            }
            Call::Script { script, .. } => {
                words.extend(["sh", "-c", script.as_str()].map(OsString::from));
            }
        }
        words
    }

    /// Reads a guest's output until it waits for a turn or has closed its outputs. If `wanted` is
    /// `Ended`, waits until the latter.
    ///
    /// Ends the guest if its time limit has passed or a signal arrived.
    fn until(&self, guest: &mut Running, wanted: State, tick: &mut dyn FnMut()) {
        while guest.state == State::Works || (wanted == State::Ended && guest.state != State::Ended)
        {
            match guest.messages.recv_timeout(TICK) {
                Ok(message) => guest.take_message(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    guest.state = State::Ended;
                    guest.wall = guest.started.elapsed();
                }
            }
            tick();
            if guest.started.elapsed() > guest.limit || self.interrupt.signal().is_some() {
                guest.terminator.terminate(&guest.child);
            }
        }
    }
}

impl Running {
    /// Records a line of output, and the guest's state if the line shows it.
    fn take_message(&mut self, message: Message) {
        match message {
            Message::Out(line) => {
                match waits(&line.text) {
                    Some(state) if self.stdin.is_some() => self.state = state,
                    _ => {}
                }
                if self.output.lines.len() < LINES_MAX {
                    self.output.lines.push(line);
                }
            }
            Message::Err(line) => {
                if self.output.errors.len() == ERROR_LINES {
                    self.output.errors.pop_front();
                }
                self.output.errors.push_back(line);
            }
        }
    }

    /// Starts a new round if the guest waits for one, so that it gets turns.
    fn begin_round(&mut self) {
        if self.state == State::BetweenRounds {
            self.state = State::Rests;
            self.rounds.push(TurnCost {
                wall_s: 0.0,
                qemu_cpu_s: Some(0.0),
            });
        }
    }

    /// Returns the CPU time of QEMU, which is `ebb run`'s only child. Returns `None` if it has
    /// ended.
    fn qemu_cpu(&self) -> Option<Duration> {
        let pid = self.child.id();
        Some(cpu_time(child_of(pid)?)?.sum())
    }
}

/// Returns the state if the line says that the program waits for a turn, and `None` otherwise.
fn waits(line: &str) -> Option<State> {
    match serde_json::from_str(line) {
        Ok(What::Phase { name, .. }) if name == "turn" => Some(State::BetweenRounds),
        Ok(What::Phase { name, .. }) if name == "rest" => Some(State::Rests),
        _ => None,
    }
}

/// Adds the events of `ebb-workloads` to the run, and its outcome.
fn judge(run: &mut Run, output: &Output, status: ExitStatus) {
    let mut stray = None;
    for line in &output.lines {
        match serde_json::from_str::<What>(&line.text) {
            Ok(what) => run.events.push(Event {
                host_s: line.timeline_s,
                what,
            }),
            Err(_) => stray = stray.or(Some(&line.text)),
        }
    }
    let unsupported = run.events.iter().find_map(|event| match &event.what {
        What::Unsupported { what } => Some(what.clone()),
        _ => None,
    });
    (run.outcome, run.error) = if status.code() == Some(STATUS_UNSUPPORTED) {
        let what = unsupported.or_else(|| output.errors.back().cloned());
        (Outcome::Unsupported, what)
    } else if !status.success() {
        (Outcome::Failed, Some(why(output, status)))
    } else if let Some(line) = stray {
        let error = format!("the program said {line:?}, which is no event of --json");
        (Outcome::Failed, Some(error))
    } else if run.events.is_empty() {
        (Outcome::Failed, Some("the program said nothing".into()))
    } else {
        (Outcome::Ok, None)
    };
}

/// Compares a script's output and status with the expected ones, and adds the guest's total time as
/// a figure.
fn judge_script(
    run: &mut Run,
    output: &Output,
    status: ExitStatus,
    (says, returns): (&str, i32),
    wall: Duration,
) {
    let said: String = output
        .lines
        .iter()
        .map(|line| format!("{}\n", line.text))
        .collect();
    if status.code() != Some(returns) {
        run.outcome = Outcome::Failed;
        run.error = Some(format!("{} for status {returns}", why(output, status)));
    } else if said != says {
        run.outcome = Outcome::Failed;
        run.error = Some(format!("it said {said:?} for {says:?}"));
    }
    run.events.push(Event {
        host_s: None,
        what: What::Result {
            metric: "start_to_end".into(),
            value: wall.as_secs_f64(),
            unit: "s".into(),
            better: Better::Lower,
            labels: BTreeMap::from([("cpus".to_owned(), "1 to 8".to_owned())]),
        },
    });
}

/// Returns why a child failed, with its last lines of stderr.
fn why(output: &Output, status: ExitStatus) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    };
    let told: Vec<&str> = output.errors.iter().map(|line| line.trim_end()).collect();
    if told.is_empty() {
        how
    } else {
        format!("{how}: {}", told.join("\n"))
    }
}
