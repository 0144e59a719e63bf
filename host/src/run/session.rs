//! Runs one guest: starts QEMU, carries the program's streams, watches the guest and explains its
//! end.
//!
//! [`run`] starts the guest again if its kernel hangs while it boots. `Session` keeps the state
//! that outlives such an attempt.

use super::accel::Choice;
use super::delivery::{Outputs, spawn};
use super::host_stalls::StallReporter;
use super::options::RunOptions;
use super::out::{Copied, Outs};
use super::pressure::{Idle, Pressure, Watcher};
use super::record::{Record, RecordFile};
use super::refused_call;
use super::root::{self, Root, RootChoice};
use super::sampler::Sampler;
use super::signals::{self, RunningVm, Signalled};
use super::timeline::Timeline;
use super::unrunnable;
use super::volumes::Volumes;
use super::watch::{Watch, WatchEnd};
use crate::blk::Disks;
use crate::confine::{self, Privileges};
use crate::failure::{Failure, describe};
use crate::guest::{Guest, Kernel, Stage, WaitStatus};
use crate::machine::KernelKind;
use crate::qemu::{BootFiles, GuestRam, Spec, Vcpus, Vm};
use crate::qemu::{End, Ended, Monitor, Qemu};
use crate::reclaim::{self, FreeMemory, PauseWatcher, ReclaimQueue, ReclaimTargets};
use crate::registry::{Facts as GuestFacts, Mapper, Published, Registration, RunParts};
use crate::streams::{Control, feed, input_is_empty};
use crate::text::raw::{Closing, Raw};
use crate::text::{Log, Terminal, one_line};
use ebb_wire::port::OutputPort;
use rustix::thread::CapabilitySet;
use signal_hook::consts::SIGKILL;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// Number of lines of the kernel's log, and of QEMU's messages, that an error shows.
const CONSOLE_LINES: usize = 20;
const QEMU_LINES: usize = 10;
/// Exit statuses of Ebb's kernel if it cannot execute the program or does not find it.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// The status with which Ebb's kernel ends if it could not obey a `--sysctl`.
const NOT_SET_UP: u8 = 125;
/// Text that the kernel's log has in the line about a process that the OOM killer killed.
const OUT_OF_MEMORY: &str = "ut of memory";
/// Text that Linux logs when it panics.
const PANIC: &str = "Kernel panic";

/// The prepared parts of the guest to run: QEMU's settings, kernel, disks and files.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// The QEMU process to start.
    pub(crate) spec: Spec<'a>,
    /// The guest's kernel.
    pub(crate) kernel: &'a dyn Kernel,
    /// The disks, empty without `--disk`.
    pub(crate) disks: &'a Disks,
    /// The destinations of `--out`. `None` without that option.
    pub(crate) outs: Option<&'a Outs>,
    /// The files that the guest sees as its root. `None` for `--root none`.
    pub(crate) root: Option<Root>,
    /// Host directories that the guest reads and writes. `None` without `--volume`.
    pub(crate) volumes: Option<Volumes>,
    /// The privileges of root that the run keeps.
    pub(crate) privileges: Privileges,
}

/// Boots the guest with the initramfs `archive`, again if its kernel hangs, and returns the
/// program's exit status. That is 128 plus the signal's number if a signal ended the program or the
/// VM. Blocks until the guest has ended.
///
/// Gives up privileges that `plan` does not need, handles signals of `ebb` from then on, and
/// restores the terminal at the end. Writes the files of `--record` and `--timeline`. If these, the
/// program's output or a copy of `--out` cannot be written, a program that succeeded gets that
/// error as result. Otherwise the error is printed.
///
/// # Errors
/// Fails if the guest cannot be set up, and the record then stays empty. Fails if the guest does
/// not boot in any attempt, runs longer than `--timeout`, or ends without a status of its program.
pub(crate) fn run(
    options: &RunOptions,
    plan: &Plan<'_>,
    archive: &File,
    choice: &Choice,
) -> Result<u8, Failure> {
    let record_file = options
        .record
        .as_deref()
        .map(RecordFile::create)
        .transpose()?;
    // Restores the user's terminal on every way out of this function.
    let _closing = Closing;
    let mut session = Session::new(options, plan, choice)?;
    let spec = &plan.spec;
    let boot_limits = plan.kernel.boot_limits(spec.memory, spec.cpus, spec.icount);
    let attempts = boot_limits.map_or(1, |boot_limits| boot_limits.attempts);
    let mut result = None;
    for attempt in 1..=attempts {
        session.record.attempts = attempt;
        let outcome = match (
            session.attempt(plan, archive),
            session.signalled.killed_by(),
        ) {
            // The signal ended QEMU, so any error of the attempt is a consequence of it.
            (Err(_), Some(signal)) => Attempt::Ended(Ok(session.killed(signal))),
            (outcome, _) => outcome?,
        };
        match outcome {
            Attempt::Ended(ended) => {
                result = Some(ended);
                break;
            }
            Attempt::Hung { console } => {
                let kernel = session.kernel_name();
                if attempt == attempts {
                    result = Some(Err(Failure::NoBoot {
                        kernel,
                        attempts,
                        console,
                    }));
                } else if options.verbose {
                    session.terminal.message(&format!(
                        "ebb: {kernel} hangs before its first process; attempt {} of {attempts}",
                        attempt + 1
                    ));
                }
            }
        }
    }
    session.signalled.vm_ended();
    let written = record_file.map_or(Ok(()), |file| file.finish(&session.record));
    match (result.unwrap_or(Ok(0)), written) {
        (Ok(0), Err(failure)) => Err(failure),
        (result, Err(failure)) => {
            failure.print();
            result
        }
        (result, Ok(())) => result,
    }
}

/// The user's terminal while the guest's program may use it.
struct Held {
    raw: Receiver<Raw>,
    /// The threads of stdin hold a weak reference, and stop once this is dropped.
    run: Arc<()>,
}

/// Interval between two checks whether the program runs.
const RUNNING_TICK: Duration = Duration::from_millis(5);

/// Waits until the guest's program runs. Returns `false` if the program or the guest has ended, or
/// if `run` is dropped.
fn wait_until_running(guest: &dyn Guest, run: &Weak<()>) -> bool {
    while run.strong_count() > 0 {
        match guest.stage() {
            Some(Stage::Running) => return true,
            Some(Stage::Exited(_) | Stage::Panicked) => return false,
            Some(Stage::Booting) | None => thread::sleep(RUNNING_TICK),
        }
    }
    false
}

/// State that outlives one attempt to boot the guest.
struct Session<'a> {
    options: &'a RunOptions,
    kernel: &'a dyn Kernel,
    choice: &'a Choice,
    terminal: Arc<Terminal>,
    timeline: Option<Timeline>,
    signalled: Arc<Signalled>,
    record: Record,
    deadline: Option<Instant>,
    /// Watches the host's memory pressure. `None` if the watcher did not start, and with
    /// `--icount`.
    watcher: Option<Watcher>,
    /// The capabilities that `ebb` has kept.
    kept: CapabilitySet,
}

/// How one attempt to run the guest ended.
enum Attempt {
    Ended(Result<u8, Failure>),
    /// The kernel did not finish booting. The program has not started, so the guest can be started
    /// again.
    Hung {
        console: Vec<String>,
    },
}

/// A guest whose QEMU runs, with the threads that carry its streams.
///
/// The order of the fields is the order in which they are dropped if the run fails: the terminal is
/// the user's again before QEMU is killed.
struct Running {
    monitor: JoinHandle<End>,
    /// `None` if the guest's kernel does not show its metadata.
    free_memory: Option<Arc<FreeMemory>>,
    /// The thread that receives the files of `--out`. `None` without that option.
    copier: Option<JoinHandle<Copied>>,
    outputs: Outputs,
    raw: Held,
    console: JoinHandle<()>,
    log: Arc<Log>,
    control: Arc<Control>,
    guest: Arc<dyn Guest>,
    vcpus: Arc<Vcpus>,
    qemu: Qemu,
}

/// The parts of a started VM that [`Session::serve`] hands to the services.
struct VmParts {
    boot_files: BootFiles,
    second_monitor: UnixStream,
    ram: Arc<GuestRam>,
}

/// The services of a running guest, and the watch that samples it.
struct Served {
    registration: Option<Registration>,
    pressure: Option<Pressure>,
    /// The second monitor with `--icount`, which does not use it. It stays open until the guest has
    /// ended.
    unused_monitor: Option<UnixStream>,
    watch: Watch,
}

impl<'a> Session<'a> {
    fn new(options: &'a RunOptions, plan: &Plan<'a>, choice: &'a Choice) -> Result<Self, Failure> {
        let timeline = options
            .timeline
            .as_deref()
            .map(Timeline::create)
            .transpose()?;
        let terminal = Arc::new(Terminal::new());
        let watcher = (!plan.spec.icount).then(Watcher::start);
        let watcher = watcher.and_then(|started| unless_failed(started, options, &terminal));
        // Now, because the user's files are open and no other thread of the run exists yet.
        let wanted = plan.privileges.capabilities();
        let kept = confine::keep(wanted).map_err(Failure::setup("giving up privileges"))?;
        // Before QEMU starts, so that no signal can end `ebb` and leave QEMU running.
        let mut caught = signals::catch().map_err(|source| Failure::Setup {
            what: "signal handlers",
            source,
        })?;
        let signalled = Arc::new(Signalled::default());
        let shared = Arc::clone(&signalled);
        let grace = options.grace;
        spawn("signals", move || {
            signals::forward(&mut caught, &shared, grace);
        })?;
        Ok(Self {
            options,
            kernel: plan.kernel,
            choice,
            terminal,
            timeline,
            signalled,
            record: Record::new(options, plan.kernel, choice.accel, plan.spec.cpus),
            deadline: options.timeout.map(|timeout| Instant::now() + timeout),
            watcher,
            kept,
        })
    }

    fn kernel_name(&self) -> String {
        self.kernel
            .title()
            .unwrap_or_else(|| "the guest kernel".into())
    }

    /// Prints details about QEMU, memory and kernel if `verbose`, and adds them to the record.
    fn announce(&mut self, plan: &Plan<'_>, vm: &Vm, verbose: Option<&Terminal>) {
        if let Some(terminal) = verbose {
            let (version, accel, reason) =
                (&vm.monitor.version, self.choice.accel, &self.choice.reason);
            terminal.message(&format!("ebb: QEMU {version} on {accel} ({reason})"));
            terminal.message(&format!("ebb: {}", plan.spec.sandbox));
            let ram = plan.spec.ram;
            let lack = ram.lack().map(|why| format!(" (no huge pages: {why})"));
            let (pages, lack) = (ram.backing(), lack.unwrap_or_default());
            terminal.message(&format!("ebb: the guest's memory is in {pages}{lack}"));
            if let Some(Root::Image(image)) = &plan.root {
                let reader = image.reader();
                terminal.message(&format!(
                    "ebb: process {reader} reads the image: no capabilities, no_new_privs, seccomp, \
                     no files"
                ));
            }
            terminal.message(&format!("ebb: ebb keeps {}", confine::names(self.kept)));
            if let Some(origin) = plan.kernel.origin() {
                let kernel = self.kernel_name();
                terminal.message(&format!("ebb: {kernel} from {}", one_line(origin)));
            }
        }
        self.record.started_with(
            &vm.monitor.version,
            &self.choice.qemu,
            &vm.line,
            &plan.spec.kernel_arguments,
        );
    }

    /// Returns the facts about this run that `ebb top` and `ebb metrics` show.
    fn published(&self, plan: &Plan<'_>) -> Arc<Published> {
        let (options, spec) = (self.options, &plan.spec);
        Arc::new(Published::new(GuestFacts {
            name: options.guest_name(),
            program: options.program_text(),
            kernel: plan.kernel.kind(),
            accel: self.choice.accel.to_string(),
            give_back: options.give_back(),
            host_pages: spec.ram.backing().word(),
            memory_bytes: spec.memory.bytes(),
            cpus: spec.cpus,
            started: SystemTime::now(),
        }))
    }

    /// Starts the thread that feeds `ebb`'s standard input to the guest once the guest is up.
    ///
    /// If the program has the user's terminal, the thread makes that terminal raw when the program
    /// starts. Until then Ctrl-C still ends a guest that hangs in its boot. The guard that keeps
    /// the terminal raw is sent to the returned [`Held`].
    ///
    /// # Errors
    /// Fails if the host has no descriptor or thread left.
    fn start_stdin(
        &self,
        stdio: &UnixStream,
        control: &Arc<Control>,
        guest: &Arc<dyn Guest>,
    ) -> Result<Held, Failure> {
        let (holder, raw) = mpsc::channel();
        let held = Held {
            raw,
            run: Arc::new(()),
        };
        let watched = Arc::downgrade(&held.run);
        let (has_terminal, is_fed) = (self.options.tty, self.options.interactive);
        // An empty input is announced on the guest's command line. A program with a terminal and
        // without `-i` never reads our input.
        if has_terminal && !is_fed || !has_terminal && input_is_empty() {
            return Ok(held);
        }
        let stdin = stdio.try_clone().map_err(|source| Failure::Setup {
            what: "the stdin socket",
            source,
        })?;
        let (lines, ready) = (Arc::clone(control), Arc::clone(guest));
        let terminal = Arc::clone(&self.terminal);
        spawn("stdin", move || {
            // Input that is read earlier would be lost if the guest has to be started again.
            if !ready.wait_until_up() {
                return;
            }
            if has_terminal {
                if !wait_until_running(&*ready, &watched) {
                    return;
                }
                match Raw::enter() {
                    Ok(raw) => {
                        terminal.set_raw(true);
                        // If the run has ended, the send fails and the guard is dropped, which
                        // restores the terminal.
                        let _ = holder.send(raw);
                    }
                    Err(errno) => {
                        terminal.message(&format!("ebb: the terminal stays as it is: {errno}"))
                    }
                }
                signals::tell_size(&lines);
            }
            feed(stdin, &lines, &terminal);
        })?;
        Ok(held)
    }

    /// Restores the user's terminal, and stops the thread of stdin from making it raw again.
    fn leave_terminal(&self, held: Held) {
        // A guard that is sent after this loop fails to be sent, and its thread drops it.
        while let Ok(raw) = held.raw.try_recv() {
            drop(raw);
        }
        drop(held);
        self.terminal.set_raw(false);
    }

    /// Starts the guest once and watches it until it ends.
    ///
    /// Returns [`Attempt::Hung`] if the kernel did not boot in the time that it has.
    ///
    /// # Errors
    /// Fails if QEMU, a thread or a port of the guest cannot be set up.
    fn attempt(&mut self, plan: &Plan<'_>, archive: &File) -> Result<Attempt, Failure> {
        let (mut running, parts) = self.start(plan, archive)?;
        let Served {
            unused_monitor: _open,
            pressure,
            registration,
            mut watch,
        } = self.serve(plan, &running, parts)?;
        let spec = &plan.spec;
        let boot_limits = plan.kernel.boot_limits(spec.memory, spec.cpus, spec.icount);
        let Running {
            qemu,
            outputs,
            control,
            ..
        } = &mut running;
        let seen = watch.until_end(qemu, outputs, control, self.deadline, boot_limits)?;
        // Removes the control socket before a signal may end `ebb` immediately.
        drop(registration);
        running.vcpus.end();
        drop(pressure);
        running.control.end();
        Ok(match seen {
            WatchEnd::Hung => Attempt::Hung {
                console: self.give_up(running, watch),
            },
            WatchEnd::Ended(how) => Attempt::Ended(self.conclude(spec, running, watch, how)),
        })
    }

    /// Starts QEMU and the threads that carry the guest's streams and serve its requests for files.
    /// Returns the running guest, and the parts of the VM for [`Self::serve`].
    ///
    /// # Errors
    /// Fails if QEMU, a thread or a port of the guest cannot be set up. QEMU is killed then.
    fn start(&mut self, plan: &Plan<'_>, archive: &File) -> Result<(Running, VmParts), Failure> {
        let Plan {
            spec,
            kernel,
            disks,
            outs,
            root: files,
            volumes,
            privileges: _,
        } = plan;
        let options = self.options;
        let verbose = options.verbose.then(|| Arc::clone(&self.terminal));
        let started = |qemu| self.signalled.set_starting(qemu);
        let vm = Vm::new(spec, archive, disks.attach()?, verbose.clone(), started)?;
        self.announce(plan, &vm, verbose.as_deref());
        let Vm {
            mut qemu,
            ram,
            mut monitor,
            vcpus,
            console,
            stdio,
            stderr,
            control: control_port,
            out,
            root: root_port,
            second_monitor,
            boot_files,
            line: _,
        } = vm;
        let guest = kernel.guest(&ram, spec.cpus, spec.icount);
        let control = Arc::new(Control::default());
        self.signalled.set_running(RunningVm {
            control: Arc::clone(&control),
            guest: Arc::clone(&guest),
            qemu: qemu.handle(),
            vcpus: Arc::clone(&vcpus),
        });
        let monitor_sender = monitor.sender().map_err(|source| Failure::Setup {
            what: "asking QEMU",
            source,
        })?;
        let log = Arc::new(Log::with_names("kernel", kernel.symbols()));
        let kept = Arc::clone(&log);
        let shown = verbose.clone();
        let console = spawn("console", move || kept.pump(console, shown.as_deref()))?;
        let raw = self.start_stdin(&stdio, &control, &guest)?;
        let outputs = Outputs::start(
            [(OutputPort::Stdout, stdio), (OutputPort::Stderr, stderr)],
            &self.terminal,
            &control,
        )?;
        let copier = match (outs, out) {
            (Some(outs), Some(port)) => Some(start_copier((*outs).clone(), port, &qemu)?),
            _ => None,
        };
        if let Some(port) = root_port {
            let terminal = Arc::clone(&self.terminal);
            let tell = move |text: &str| terminal.message(&format!("ebb: {text}"));
            let source = files.as_ref().map(|files| files.source(Box::new(tell)));
            let source = source.transpose();
            let source = source.map_err(Failure::setup("the guest's root"))?;
            let volumes = volumes.as_ref().map(Volumes::try_clone).transpose();
            let volumes = volumes.map_err(Failure::setup("the guest's volumes"))?;
            let ram = Arc::clone(&ram);
            let terminal = Arc::clone(&self.terminal);
            spawn("root", move || {
                if let Err(error) = root::serve(source, volumes, &ram, port) {
                    terminal.message(&format!(
                        "ebb: the guest cannot access --root and --volume any more: {error}"
                    ));
                }
            })?;
        }
        monitor.start().map_err(|source| {
            qemu.handle().kill();
            Failure::Monitor {
                source,
                qemu: qemu.last_words(QEMU_LINES),
            }
        })?;
        Arc::clone(&guest)
            .attend(&control_port, monitor_sender)
            .map_err(Failure::setup("listening to the guest"))?;
        let free_memory = kernel.shows_metadata().then(|| {
            let (ram, guest) = (Arc::clone(&ram), Arc::clone(&guest));
            let memory = FreeMemory::new(ram, guest, spec.is_atomic_for_others());
            Arc::new(memory.with_vcpus(Arc::clone(&vcpus)))
        });
        if let Some(memory) = free_memory.clone() {
            let calls = control_port.try_clone();
            let calls = calls.map_err(Failure::setup("listening to the guest"))?;
            let shown = verbose.clone();
            spawn("reclaim", move || reclaim::serve(&memory, calls, shown))?;
        }
        let lines = Arc::clone(&control);
        spawn("control", move || lines.pump(control_port))?;
        let (handle, learner) = (qemu.handle(), Arc::clone(&guest));
        let told = Arc::clone(&vcpus);
        let monitor = spawn("monitor", move || {
            Monitor::wait_for_end(monitor, &handle, &told, |answer| learner.learn(answer))
        })?;
        let running = Running {
            monitor,
            free_memory,
            copier,
            outputs,
            raw,
            console,
            log,
            control,
            guest,
            vcpus,
            qemu,
        };
        let parts = VmParts {
            boot_files,
            second_monitor,
            ram,
        };
        Ok((running, parts))
    }

    /// Starts what the host does with the `running` guest's memory, and what other commands of
    /// `ebb` ask it. The returned watch has not taken a sample yet.
    ///
    /// # Errors
    /// Fails if a thread or descriptor for stopping the guest's CPUs or for asking the guest cannot
    /// be had.
    fn serve(
        &mut self,
        plan: &Plan<'_>,
        running: &Running,
        parts: VmParts,
    ) -> Result<Served, Failure> {
        let (spec, kernel, options) = (&plan.spec, plan.kernel, self.options);
        let verbose = options.verbose.then(|| Arc::clone(&self.terminal));
        let Running {
            free_memory,
            control,
            guest,
            vcpus,
            ..
        } = running;
        let VmParts {
            boot_files,
            second_monitor,
            ram,
        } = parts;
        // With `--icount` the figures must not depend on what the host does.
        let taken = free_memory.clone().filter(|_| !spec.icount);
        let pause_watcher = PauseWatcher::start(
            Arc::clone(vcpus),
            Arc::clone(&ram),
            Arc::clone(guest),
            taken,
            options.give_back(),
            verbose.clone(),
        );
        let pause_watcher = pause_watcher.map_err(Failure::setup("following the guest"))?;
        let (reclaim_queue, unused_monitor) = if spec.icount {
            (None, Some(second_monitor))
        } else {
            let targets = ReclaimTargets {
                kernel: kernel.kind(),
                guest: Arc::clone(guest),
                control: (kernel.kind() == KernelKind::Ebb).then(|| Arc::clone(control)),
                free_memory: free_memory.clone(),
                pause_watcher: Arc::clone(&pause_watcher),
                monitor: second_monitor,
                shown: verbose.clone(),
            };
            let reclaim_queue = ReclaimQueue::start(targets);
            let reclaim_queue = reclaim_queue.map_err(Failure::setup("asking the guest"))?;
            (Some(Arc::new(reclaim_queue)), None)
        };
        let watched = reclaim_queue.as_ref().zip(self.watcher.as_ref());
        let pressure = watched.and_then(|(reclaim_queue, watcher)| {
            let (pause_watcher, reclaim_queue) =
                (Arc::clone(&pause_watcher), Arc::clone(reclaim_queue));
            let wanted = Idle::new(pause_watcher, reclaim_queue, free_memory.clone());
            let is_told = kernel.kind() == KernelKind::Ebb;
            let reporter = is_told.then(|| StallReporter::new(Arc::clone(control)));
            let started = Pressure::start(watcher, wanted, reporter.flatten());
            unless_failed(started, options, &self.terminal)
        });
        let parts = RunParts {
            published: self.published(plan),
            mapper: kernel
                .shows_metadata()
                .then(|| Mapper::new(Arc::clone(&ram), Arc::clone(guest))),
            disks: plan.disks.server(),
            control: (kernel.kind() == KernelKind::Ebb).then(|| Arc::clone(control)),
            free_memory: free_memory.clone(),
            reclaim_queue: reclaim_queue.clone(),
            pause_watcher: Arc::clone(&pause_watcher),
        };
        let published = Arc::clone(&parts.published);
        let registration = Registration::start(parts, verbose.clone());
        let watch = Watch::new(
            options,
            Arc::clone(&self.terminal),
            Sampler::new(
                ram,
                Arc::clone(guest),
                free_memory.clone(),
                reclaim_queue,
                pause_watcher,
            ),
            self.timeline.take(),
            spec.memory,
            published,
            boot_files,
        );
        Ok(Served {
            registration,
            pressure,
            unused_monitor,
            watch,
        })
    }

    /// Kills a guest that hangs while it boots, and waits for the threads of its streams. Returns
    /// the last lines of its kernel's log.
    fn give_up(&mut self, running: Running, watch: Watch) -> Vec<String> {
        running.qemu.handle().kill();
        // Its sockets close, which ends the threads of this attempt.
        drop(running.qemu);
        let _ = running.outputs.finish();
        self.leave_terminal(running.raw);
        let _ = running.copier.map(JoinHandle::join);
        let _ = running.console.join();
        self.timeline = watch.give_up();
        running.log.last(CONSOLE_LINES)
    }

    /// Finishes a run whose QEMU has ended in the way `how`: waits for the threads of its streams,
    /// completes the record and the timeline, and prints remarks.
    ///
    /// Returns the program's exit status, or 128 + N if signal N ended the VM.
    ///
    /// # Errors
    /// Fails if the program ran longer than `--timeout`, if the guest ended without a status of the
    /// program, or if the program succeeded and its output or a file could not be written.
    fn conclude(
        &mut self,
        spec: &Spec<'_>,
        running: Running,
        watch: Watch,
        how: Ended,
    ) -> Result<u8, Failure> {
        let options = self.options;
        let Running {
            mut qemu,
            vcpus,
            guest,
            control: _,
            log,
            console,
            raw,
            outputs,
            copier,
            free_memory,
            monitor,
        } = running;
        self.signalled.vm_ended();
        let lost_output = outputs.finish();
        // The terminal is the user's again before further messages.
        self.leave_terminal(raw);
        // QEMU has ended, so the port is closed and the thread finishes.
        let copied = copier.map(JoinHandle::join);
        let copied = copied.and_then(Result::ok).unwrap_or_default();
        let _ = console.join();
        let end = monitor.join().unwrap_or_default();
        let timed_out = watch.timed_out;
        let (started, cpu) = (watch.started, qemu.cpu_time());
        let (stage, summary, lost_timeline) = {
            let taken = free_memory.map(|memory| memory.sums());
            watch.finish(options, self.choice, self.kernel, taken)
        };
        let status = match stage {
            Some(Stage::Exited(status)) => Some(status),
            _ => None,
        };
        let stopped = vcpus.total_stopped();
        self.record
            .ended_with(&summary, started, cpu, status, stopped);
        for remark in copied.remarks.iter().filter(|_| !options.quiet) {
            self.terminal.message(&format!("ebb: {remark}"));
        }
        // If `ebb` killed the program for the timeout, its status is not the program's own.
        let timed_out = timed_out && status.is_none_or(|status| status.signal() == Some(SIGKILL));
        if let (false, Some(status)) = (timed_out, status) {
            self.explain(status, &log, spec);
            let lost = [lost_output, lost_timeline, copied.failure];
            let mut lost = lost.into_iter().flatten();
            let first = lost.next().filter(|failure| {
                let is_all = status.code() == 0;
                if !is_all {
                    failure.print();
                }
                is_all
            });
            lost.for_each(|failure| failure.print());
            return first.map_or(Ok(status.code()), Err);
        }
        // A program that never started has no files to copy, so their absence is no news.
        if let (Some(failure), true) = (copied.failure, started.is_some()) {
            failure.print();
        }
        if let Some(signal) = self.signalled.killed_by() {
            return Ok(self.killed(signal));
        }
        if let (true, Some(after)) = (timed_out, options.timeout) {
            return Err(Failure::Timeout { after });
        }
        let failure = guest.complaint().map_or_else(
            || self.why(stage, how, &end, &log, &mut qemu),
            Failure::from,
        );
        Err(failure)
    }

    /// Returns the exit status for a VM that `signal` ended (128 + `signal`). Prints the reason if
    /// its program was still running.
    fn killed(&self, signal: i32) -> u8 {
        if let Some(why) = self.signalled.why() {
            self.terminal.message(&format!("ebb: ended the VM: {why}"));
        }
        128 + u8::try_from(signal).unwrap_or(0)
    }

    /// Prints why the program could not be started, that the guest's OOM killer killed it, or which
    /// call of a failed program the kernel does not have. Prints nothing for other statuses.
    fn explain(&self, status: WaitStatus, log: &Log, spec: &Spec<'_>) {
        if matches!(status.code(), NOT_EXECUTABLE | NOT_FOUND | NOT_SET_UP)
            && let Some(text) = unrunnable::explained(log)
        {
            self.terminal.message(&text);
        } else if status.code() != 0
            && !self.options.quiet
            && let Some(text) =
                refused_call::explained(log, self.options.root() == RootChoice::Host)
        {
            self.terminal.message(&text);
        }
        if status.signal() == Some(SIGKILL)
            && !self.options.quiet
            && let Some(line) = log.last_with(OUT_OF_MEMORY)
        {
            let line = line
                .split_once("] ")
                .map_or(line.as_str(), |(_, text)| text);
            let memory = spec.memory;
            self.terminal
                .message(&format!("ebb: the guest ran out of its {memory}: {line}"));
        }
    }

    /// Returns the error that explains why a guest ended without a status of its program.
    fn why(
        &self,
        stage: Option<Stage>,
        ended: Ended,
        end: &End,
        log: &Log,
        qemu: &mut Qemu,
    ) -> Failure {
        let console = log.last(CONSOLE_LINES);
        match (stage, ended) {
            (Some(Stage::Panicked), _) => Failure::Panic { console },
            _ if end.stopped => Failure::Stopped {
                accel: self.choice.accel,
                qemu: qemu.first_words(QEMU_LINES),
            },
            (_, Ended::Signal(signal)) => Failure::Killed { signal },
            _ if log.last_with(PANIC).is_some() => Failure::ForeignPanic {
                kernel: self.kernel_name(),
                console,
            },
            (_, Ended::Exit(_)) => {
                let mut how = describe(ended);
                if let Some(cause) = &end.cause {
                    how.push_str(&format!(", cause {}", one_line(cause)));
                }
                Failure::Lost {
                    how,
                    console,
                    qemu: qemu.last_words(QEMU_LINES),
                }
            }
        }
    }
}

/// Returns the value of `started`. If that failed, returns `None` so that the run goes on without
/// it, and prints the error with `--verbose`.
fn unless_failed<T>(
    started: Result<T, Failure>,
    options: &RunOptions,
    terminal: &Terminal,
) -> Option<T> {
    if let (Err(failure), true) = (&started, options.verbose) {
        terminal.message(&format!("ebb: {failure}"));
    }
    started.ok()
}

/// Starts the thread that receives the files of `--out` from the guest. It kills QEMU if the guest
/// sends without end.
fn start_copier(outs: Outs, port: UnixStream, qemu: &Qemu) -> Result<JoinHandle<Copied>, Failure> {
    let handle = qemu.handle();
    spawn("out", move || outs.receive(port, || handle.kill()))
}
