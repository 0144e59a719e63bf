//! One run of a guest: starts it, carries its streams, watches it, and says how it ended.

use crate::accel::Choice;
use crate::chart::Chart;
use crate::cli::RunOptions;
use crate::console::Log;
use crate::control::{Control, OutputPort};
use crate::failure::{Failure, describe};
use crate::header::{Header, Stage};
use crate::qemu::{Ended, Qemu, overhead_bytes};
use crate::qmp::{End, Monitor};
use crate::registry::{Facts as GuestFacts, KernelKind, Mapper, Published, Registration};
use crate::sample::{Sample, Sampler, Trace};
use crate::signals::{self, Signalled};
use crate::size::Size;
use crate::status_line::{self, Style};
use crate::stream::{self, Output};
use crate::summary::{Facts, Summary};
use crate::symbols::Symbols;
use crate::terminal::Terminal;
use crate::timeline::Timeline;
use crate::vm::{Spec, Vm};
use rustix::io::Errno;
use signal_hook::consts::SIGKILL;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// How often the guest is looked at.
const TICK: Duration = Duration::from_millis(50);
/// The status line is drawn at every so many looks, since people read no faster.
const TICKS_A_LINE: u64 = 2;
/// QEMU's own memory changes slowly and costs a walk of its page tables to ask for.
const TICKS_AN_OVERHEAD: u64 = 10;
/// A guest that is through and has nothing more to write ends within this, or is ended.
const LINGER: Duration = Duration::from_secs(5);
/// Lines of the kernel's log and of QEMU's messages in an error.
const CONSOLE_LINES: usize = 20;
const QEMU_LINES: usize = 10;
/// How the kernel's log names a victim of its out-of-memory killer.
const OUT_OF_MEMORY: &str = "ut of memory";

/// Runs the guest and returns the program's status.
pub(crate) fn run(
    options: &RunOptions,
    spec: Spec<'_>,
    archive: File,
    choice: &Choice,
) -> Result<u8, Failure> {
    let terminal = Arc::new(Terminal::new());
    let timeline = options
        .timeline
        .as_deref()
        .map(Timeline::create)
        .transpose()?;
    let (memory, cpus) = (spec.memory, spec.cpus);
    let (header_address, image_bytes) = (spec.kernel.header, spec.kernel.span_bytes);
    let symbols = Symbols::new(spec.kernel.bytes.clone());
    // Caught before there is a QEMU that a signal could leave behind.
    let mut caught = signals::catch().map_err(|source| Failure::Setup {
        what: "signal handlers",
        source,
    })?;
    let verbose = options.verbose.then(|| Arc::clone(&terminal));
    let vm = Vm::new(spec, archive, verbose.clone())?;
    if let Some(terminal) = &verbose {
        let (version, accel, reason) = (&vm.monitor.version, choice.accel, &choice.reason);
        terminal.message(&format!("ebb: QEMU {version} on {accel} ({reason})"));
    }
    let Vm {
        mut qemu,
        ram,
        mut monitor,
        console,
        stdio,
        stderr,
        control: control_port,
    } = vm;
    let header = Header::new(Arc::clone(&ram), header_address);

    let control = Arc::new(Control::default());
    let signalled = Arc::new(Signalled::default());
    {
        let (signalled, control) = (Arc::clone(&signalled), Arc::clone(&control));
        let (header, handle) = (header.clone(), qemu.handle());
        spawn("signals", move || {
            signals::forward(&mut caught, &signalled, &control, &header, &handle);
        })?;
    }
    let lines = Arc::clone(&control);
    spawn("control", move || lines.pump(control_port))?;
    let log = Arc::new(Log::with_symbols("kernel", symbols));
    let kept = Arc::clone(&log);
    let console = spawn("console", move || kept.pump(console, verbose.as_deref()))?;
    let stdin = stdio.try_clone().map_err(|source| Failure::Setup {
        what: "the stdin socket",
        source,
    })?;
    let lines = Arc::clone(&control);
    spawn("stdin", move || stream::feed(stdin, &lines))?;
    let outputs = Outputs {
        stdout: Delivery::start(OutputPort::Stdout, stdio, &terminal, &control)?,
        stderr: Delivery::start(OutputPort::Stderr, stderr, &terminal, &control)?,
    };
    monitor.start().map_err(|source| {
        qemu.handle().kill();
        Failure::Monitor {
            source,
            qemu: qemu.last_words(QEMU_LINES),
        }
    })?;
    let handle = qemu.handle();
    let monitor = spawn("monitor", move || Monitor::wait_for_end(monitor, &handle))?;

    let published = Arc::new(Published::new(GuestFacts {
        name: options.guest_name(),
        program: options.program_text(),
        kernel: KernelKind::Ebb,
        accel: choice.accel.to_string(),
        give_back: options.give_back.name(),
        memory_bytes: memory.bytes(),
        cpus,
        started: SystemTime::now(),
    }));
    let mapper = Mapper::new(Arc::clone(&ram), header.clone());
    let shown = options.verbose.then(|| Arc::clone(&terminal));
    let registration = Registration::start(Arc::clone(&published), Some(mapper), shown);
    let mut watch = Watch {
        sampler: Sampler::new(ram, header, image_bytes),
        trace: Trace::new(),
        timeline,
        line: (terminal.interactive() && !options.quiet).then(Style::from_environment),
        terminal: &terminal,
        memory,
        overhead: None,
        published,
        timed_out: false,
    };
    let timeout = options.timeout.map(Duration::from_secs);
    let ended = watch.until_end(&mut qemu, &outputs, timeout)?;
    // Before a signal can end ebb on the spot.
    drop(registration);
    signalled.vm_ended();
    control.end();
    let lost_output = outputs.finish();
    let _ = console.join();
    let End { cause, stopped } = monitor.join().unwrap_or_default();
    let timed_out = watch.timed_out;
    let (stage, lost_timeline) = watch.finish(options, choice);

    if let Some(Stage::Exited(status)) = stage {
        if status.signal() == Some(SIGKILL)
            && !options.quiet
            && let Some(line) = log.last_with(OUT_OF_MEMORY)
        {
            let line = line
                .split_once("] ")
                .map_or(line.as_str(), |(_, text)| text);
            terminal.message(&format!("ebb: the guest ran out of its {memory}: {line}"));
        }
        return match lost_output.or(lost_timeline) {
            Some(failure) if status.code() == 0 => Err(failure),
            Some(failure) => {
                failure.print();
                Ok(status.code())
            }
            None => Ok(status.code()),
        };
    }
    if let Some(signal) = signalled.killed_by() {
        return Ok(128 + u8::try_from(signal).unwrap_or(0));
    }
    if let (true, Some(seconds)) = (timed_out, options.timeout) {
        return Err(Failure::Timeout { seconds });
    }
    let console = log.last(CONSOLE_LINES);
    Err(match (stage, ended) {
        (Some(Stage::Panicked), _) => Failure::Panic { console },
        _ if stopped => Failure::Stopped {
            accel: choice.accel,
            qemu: qemu.first_words(QEMU_LINES),
        },
        (_, Ended::Signal(signal)) => Failure::Killed { signal },
        (_, Ended::Exit(_)) => {
            let mut how = describe(ended);
            if let Some(cause) = cause {
                how.push_str(&format!(", cause {cause:?}"));
            }
            Failure::Lost {
                how,
                console,
                qemu: qemu.last_words(QEMU_LINES),
            }
        }
    })
}

fn spawn<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|source| Failure::Setup {
            what: "a thread",
            source,
        })
}

/// An output of the program on its way to ours.
struct Delivery {
    output: Arc<Output>,
    thread: JoinHandle<Result<(), Errno>>,
}

impl Delivery {
    fn start(
        port: OutputPort,
        socket: std::os::unix::net::UnixStream,
        terminal: &Arc<Terminal>,
        control: &Arc<Control>,
    ) -> Result<Self, Failure> {
        let output = Arc::new(Output::new(port, terminal));
        let receiver = Arc::clone(&output);
        spawn("receive", move || receiver.receive(socket))?;
        let (sender, terminal, control) = (
            Arc::clone(&output),
            Arc::clone(terminal),
            Arc::clone(control),
        );
        let thread = spawn("deliver", move || sender.deliver(&terminal, &control))?;
        Ok(Self { output, thread })
    }
}

struct Outputs {
    stdout: Delivery,
    stderr: Delivery,
}

impl Outputs {
    fn idle(&self) -> bool {
        self.stdout.output.idle() && self.stderr.output.idle()
    }

    /// Waits until all is written; returns the first error.
    fn finish(self) -> Option<Failure> {
        let mut failure = None;
        for (delivery, stream) in [(self.stdout, "stdout"), (self.stderr, "stderr")] {
            if let Ok(Err(errno)) = delivery.thread.join() {
                let source = io::Error::from(errno);
                failure = failure.or(Some(Failure::Output { stream, source }));
            }
        }
        failure
    }
}

/// What looks at the guest while it runs, and where that goes.
struct Watch<'a> {
    sampler: Sampler,
    trace: Trace,
    timeline: Option<Timeline>,
    line: Option<Style>,
    terminal: &'a Terminal,
    memory: Size,
    overhead: Option<u64>,
    published: Arc<Published>,
    timed_out: bool,
}

impl Watch<'_> {
    /// Looks every [`TICK`] until QEMU has ended.
    fn until_end(
        &mut self,
        qemu: &mut Qemu,
        outputs: &Outputs,
        timeout: Option<Duration>,
    ) -> Result<Ended, Failure> {
        let started = Instant::now();
        let mut next = started;
        let mut through: Option<Instant> = None;
        for tick in 0u64.. {
            let sample = self.look(tick);
            if tick.is_multiple_of(TICKS_AN_OVERHEAD) {
                self.overhead = self.overhead.max(overhead_bytes(qemu.pid()));
            }
            let now = Instant::now();
            if matches!(sample.stage, Some(Stage::Exited(_) | Stage::Panicked)) && outputs.idle() {
                if now.duration_since(*through.get_or_insert(now)) > LINGER {
                    qemu.handle().kill();
                }
            } else {
                through = None;
            }
            if !self.timed_out && timeout.is_some_and(|timeout| now - started >= timeout) {
                self.timed_out = true;
                qemu.handle().kill();
            }
            // On a grid, so that looking takes no time; a late look is not made up for.
            next = (next + TICK).max(now);
            let failed = |source| Failure::Setup {
                what: "waiting for QEMU",
                source,
            };
            if let Some(ended) = qemu.wait(next - now).map_err(failed)? {
                return Ok(ended);
            }
        }
        unreachable!("2^64 ticks are 29 thousand million years")
    }

    fn look(&mut self, tick: u64) -> Sample {
        let sample = self.sampler.sample();
        self.trace.add(sample);
        self.published.publish(&sample, self.overhead);
        if let Some(timeline) = &mut self.timeline {
            timeline.add(&sample);
        }
        if let Some(style) = self.line
            && tick.is_multiple_of(TICKS_A_LINE)
        {
            let columns = self.terminal.columns();
            self.terminal
                .draw(&status_line::render(&sample, self.memory, columns, style));
        }
        sample
    }

    /// The last look, and what the run came to. The guest's memory is ours, so it can be read
    /// when QEMU is gone.
    fn finish(mut self, options: &RunOptions, choice: &Choice) -> (Option<Stage>, Option<Failure>) {
        self.terminal.clear();
        let sample = self.sampler.sample();
        self.trace.add(sample);
        let facts = Facts {
            memory: self.memory.bytes(),
            accel: choice.accel.to_string(),
            give_back: options.give_back.name(),
            qemu: self.overhead,
            guest_time_is_host_time: !options.icount,
        };
        let summary = Summary::new(&self.trace, facts);
        let lost = self
            .timeline
            .and_then(|timeline| timeline.finish(&sample, &summary).err());
        if options.summary || (self.terminal.interactive() && !options.quiet) {
            let mut text = summary.to_string();
            if summary.returned.is_some() {
                let chart = Chart {
                    points: self.trace.points(),
                    style: Style::from_environment(),
                };
                text.push_str(&format!("\n\n{chart}\n"));
            }
            self.terminal.message(&text);
        }
        (sample.stage, lost)
    }
}
