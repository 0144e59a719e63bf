//! Polls a running guest until it ends, and computes the figures of the run.
//!
//! [`Watch`] samples the guest, feeds the samples to the status line, the timeline and the trace,
//! and enforces `--timeout`. When the program starts, it gives the memory of the kernel image and
//! the initramfs back to the host.

use super::accel::Choice;
use super::boot_watchdog::BootWatchdog;
use super::chart::Chart;
use super::delivery::Outputs;
use super::options::RunOptions;
use super::sampler::Sampler;
use super::sampler::Started;
use super::status_line;
use super::summary::{Facts, Summary};
use super::timeline::Timeline;
use super::trace::Trace;
use crate::failure::Failure;
use crate::guest::Sample;
use crate::guest::Stage;
use crate::guest::{BootLimits, Kernel};
use crate::qemu::{BootFiles, Ended, Qemu, Wish, cpu_time, overhead_bytes, overhead_pss};
use crate::reclaim::Reclaimed;
use crate::registry::Published;
use crate::streams::{Control, input_is_terminal};
use crate::system::slowdown;
use crate::text::Size;
use crate::text::Style;
use crate::text::Terminal;
use signal_hook::consts::SIGKILL;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between two samples of a running guest.
const TICK: Duration = Duration::from_millis(50);
/// Interval while the guest's CPUs are stopped. An event wakes the thread earlier.
const TICK_STILL: Duration = Duration::from_secs(1);
/// Interval between two checks whether the program has started, so that its start time is exact,
/// and between two samples of a timeline while the resident memory changes.
const GLANCE: Duration = Duration::from_millis(5);
/// A change of the resident memory from one sample to the next that is at least this large, in
/// bytes, makes the timeline's samples closer.
const CHANGE: u64 = 1 << 20;
/// The timeline's samples are close until the resident memory has not changed for this time.
const CLOSE_FOR: Duration = Duration::from_millis(250);
/// The status line is drawn once for this number of samples.
const TICKS_A_LINE: u64 = 2;
/// QEMU's memory use is read once for this number of samples: the host's kernel walks page tables
/// for it.
const TICKS_AN_OVERHEAD: u64 = 10;
/// Reading QEMU's proportional set size takes at most 1/`PSS_SHARE` of the time, since the host's
/// kernel looks at each page of the guest.
const PSS_SHARE: u32 = 200;
/// A message for a user at a terminal whose program reads from it without `-t`.
const READS: &str = "ebb: the program reads what you type here, line by line, and shells show no \
prompt (Ctrl-D ends the input); `ebb run -it` gives it a terminal";
/// A guest that has finished, and whose output is all written, is killed after this time.
const LINGER: Duration = Duration::from_secs(5);

/// Samples a guest while it runs, and passes the samples on to the status line, the timeline, the
/// trace and the control socket.
pub(crate) struct Watch {
    sampler: Sampler,
    trace: Trace,
    timeline: Option<Timeline>,
    /// The resident memory of the latest sample of the timeline, in bytes.
    resident: u64,
    /// The timeline has close samples until then. `None` before the resident memory first changed.
    close_until: Option<Instant>,
    line: Option<Style>,
    /// The program's standard input is the user's terminal.
    typed: bool,
    terminal: Arc<Terminal>,
    memory: Size,
    overhead: Option<u64>,
    pss: Option<u64>,
    /// When to read `pss` next, which is expensive.
    pss_due: Instant,
    published: Arc<Published>,
    /// The kernel and archive files, until the program runs and their memory is freed.
    boot_files: Option<BootFiles>,
    /// Time to send the files of `--out` after the timeout. `None` if no files are wanted.
    grace: Option<Duration>,
    /// The time of `--timeout` has passed.
    pub(crate) timed_out: bool,
    /// When the program was first seen to run. `None` if it was never seen.
    pub(crate) started: Option<Started>,
}

/// Why [`Watch::until_end`] returned: QEMU has ended, or the kernel did not boot in time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum WatchEnd {
    /// QEMU has ended.
    Ended(Ended),
    /// The kernel did not boot within its time.
    Hung,
}

impl Watch {
    /// Creates a watch of the guest that `sampler` samples. It samples nothing yet.
    ///
    /// `memory` is the size of the guest's memory. Figures are published to `published`. The memory
    /// of `boot_files` (kernel and archive) is freed when the program starts. `timeline` is `None`
    /// if the user wants none.
    pub(crate) fn new(
        options: &RunOptions,
        terminal: Arc<Terminal>,
        sampler: Sampler,
        timeline: Option<Timeline>,
        memory: Size,
        published: Arc<Published>,
        boot_files: BootFiles,
    ) -> Self {
        Self {
            sampler,
            trace: Trace::new(),
            timeline,
            resident: 0,
            close_until: None,
            // With `-t` the program draws on the whole screen.
            line: (terminal.interactive() && !options.quiet && !options.tty)
                .then(Style::from_environment),
            typed: input_is_terminal(),
            terminal,
            memory,
            overhead: None,
            pss: None,
            pss_due: Instant::now(),
            published,
            boot_files: Some(boot_files),
            grace: (!options.outs.is_empty()).then_some(options.grace),
            timed_out: false,
            started: None,
        }
    }

    /// Samples the guest every 50 ms until QEMU has ended, and every second while its CPUs are
    /// stopped. The timeline has a sample every 5 ms while the resident memory changes. Draws the
    /// status line. Kills QEMU if it still runs 5 s after the guest has finished and all its output
    /// is written.
    ///
    /// At `deadline` it kills QEMU and sets `timed_out`. If files of `--out` are wanted and the
    /// program runs, it kills only the program first, and QEMU after the time for sending them.
    /// With `limits`, it returns [`WatchEnd::Hung`], with QEMU still running, if the kernel does
    /// not boot in time.
    ///
    /// # Errors
    /// Fails if waiting for QEMU fails.
    pub(crate) fn until_end(
        &mut self,
        qemu: &mut Qemu,
        outputs: &Outputs,
        control: &Control,
        mut deadline: Option<Instant>,
        limits: Option<BootLimits>,
    ) -> Result<WatchEnd, Failure> {
        let mut next = Instant::now();
        let mut watchdog = limits.map(|limits| BootWatchdog::new(limits, TICK));
        let mut through: Option<Instant> = None;
        let mut told = false;
        for tick in 0u64.. {
            self.sampler.pause_watcher().vcpus().take_signal();
            let still = self.sampler.pause_watcher().vcpus().look().is_some();
            let sample = self.sample(tick);
            if tick.is_multiple_of(TICKS_AN_OVERHEAD) {
                self.overhead = self.overhead.max(overhead_bytes(qemu.pid()));
                self.look_at_pss(qemu.pid());
            }
            let now = Instant::now();
            if !told && outputs.idle() && self.sampler.guest().is_to_be_ended(outputs.received()) {
                control.end_of_machine();
                told = true;
            }
            let over = matches!(sample.stage, Some(Stage::Exited(_) | Stage::Panicked));
            // A guest whose CPUs are stopped may still have output to write.
            if (over || told) && outputs.idle() && !still {
                if now.duration_since(*through.get_or_insert(now)) > LINGER {
                    qemu.handle().kill();
                }
            } else {
                through = None;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                let spared = self
                    .grace
                    .take()
                    .filter(|_| sample.stage == Some(Stage::Running));
                match spared {
                    // With `--out`, only the program is killed, so that the guest can send its
                    // files.
                    Some(grace) if !self.timed_out => {
                        control.signal(SIGKILL);
                        let _ = self.sampler.pause_watcher().vcpus().ask(Wish::Resume);
                        deadline = Some(now + grace);
                    }
                    _ if deadline.take().is_some() => qemu.handle().kill(),
                    _ => {}
                }
                self.timed_out = true;
            }
            if sample.stage.is_none()
                && !self.timed_out
                && !still
                && let Some(watchdog) = &mut watchdog
                && watchdog.has_expired(cpu_time(qemu.pid()).unwrap_or_default().sum(), slowdown(0))
            {
                return Ok(WatchEnd::Hung);
            }
            // The next sample is due on a fixed grid, so the work here adds no delay. A missed
            // sample is not repeated.
            next = if still {
                deadline.map_or(now + TICK_STILL, |deadline| {
                    deadline.min(now + TICK_STILL).max(now + GLANCE)
                })
            } else {
                (next + TICK).max(now)
            };
            if let Some(ended) = self.pause_until(next, still, qemu)? {
                return Ok(WatchEnd::Ended(ended));
            }
        }
        unreachable!("2^64 ticks are 29 thousand million years")
    }

    /// Waits until `next` or for QEMU's end. Returns `None` if the next sample is due, which an
    /// event may bring forward.
    ///
    /// If the guest is not `still`, this also checks every [`GLANCE`] whether its program runs, and
    /// adds samples to the timeline while the resident memory changes.
    fn pause_until(
        &mut self,
        next: Instant,
        still: bool,
        qemu: &mut Qemu,
    ) -> Result<Option<Ended>, Failure> {
        let failed = |source| Failure::Setup {
            what: "waiting for QEMU",
            source,
        };
        loop {
            let left = next.saturating_duration_since(Instant::now());
            let close = self.close_until.is_some_and(|until| Instant::now() < until);
            let pause = if (self.started.is_none() || close) && !still {
                left.min(GLANCE)
            } else {
                left
            };
            let vcpus = self.sampler.pause_watcher().vcpus();
            if let Some(ended) = qemu.wait(pause, vcpus).map_err(failed)? {
                return Ok(Some(ended));
            }
            let signalled = vcpus.take_signal();
            if self.started.is_none() {
                self.started = self.sampler.started();
                if self.started.is_some()
                    && let Some(files) = self.boot_files.take()
                {
                    // If this fails, the files keep their memory until QEMU ends, which does not
                    // disturb the program.
                    let _ = files.give_back();
                }
            }
            if pause == left || signalled {
                return Ok(None);
            }
            if close {
                let sample = self.sampler.sample();
                self.trace.add(sample);
                self.write(&sample);
            }
        }
    }

    fn look_at_pss(&mut self, pid: u32) {
        let begin = Instant::now();
        if begin >= self.pss_due {
            self.pss = self.pss.max(overhead_pss(pid));
            self.pss_due = begin + begin.elapsed() * PSS_SHARE;
        }
    }

    /// Writes `sample` to the timeline, if the user wants one.
    fn write(&mut self, sample: &Sample) {
        let Some(timeline) = &mut self.timeline else {
            return;
        };
        timeline.add(sample);
        if sample.resident.abs_diff(self.resident) >= CHANGE {
            self.close_until = Some(Instant::now() + CLOSE_FOR);
        }
        self.resident = sample.resident;
    }

    fn sample(&mut self, tick: u64) -> Sample {
        let sample = self.sampler.sample();
        self.trace.add(sample);
        self.published.publish(&sample, self.overhead, self.pss);
        self.write(&sample);
        if self.typed && sample.awaited_input && self.line.take().is_some() {
            self.terminal.give_up_line();
            if self.terminal.in_foreground() {
                self.terminal.message(READS);
            }
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

    /// Ends the watch of a boot attempt that failed, and clears the status line. Returns the
    /// timeline, from which the lines of that attempt are removed. Returns `None` if the user wants
    /// no timeline.
    pub(crate) fn give_up(self) -> Option<Timeline> {
        self.terminal.clear();
        let mut timeline = self.timeline;
        if let Some(timeline) = &mut timeline {
            timeline.restart();
        }
        timeline
    }

    /// Takes the last sample and writes the last line of the timeline. Clears the status line, and
    /// prints the summary with `--summary`, or its short form in the foreground without `--quiet`.
    /// Call this after QEMU has ended. `taken` counts memory that the host took by itself.
    ///
    /// Returns the guest's final stage (`None` if its kernel never answered), the summary, and the
    /// error if the timeline could not be written.
    pub(crate) fn finish(
        mut self,
        options: &RunOptions,
        choice: &Choice,
        kernel: &dyn Kernel,
        taken: Option<Reclaimed>,
    ) -> (Option<Stage>, Summary, Option<Failure>) {
        self.terminal.clear();
        let sample = self.sampler.sample();
        self.trace.add(sample);
        let facts = Facts {
            memory: self.memory.bytes(),
            accel: choice.accel.to_string(),
            give_back: sample.give_back.unwrap_or(options.give_back()).name(),
            kernel: kernel.title(),
            qemu: self.overhead,
            qemu_pss: self.pss,
            taken: taken.filter(|taken| taken.bytes != 0),
            guest_time_is_host_time: !options.icount,
        };
        let summary = Summary::new(&self.trace, facts);
        let lost = self
            .timeline
            .and_then(|timeline| timeline.finish(&sample, &summary).err());
        if options.summary {
            let mut text = summary.to_string();
            if summary.returned.is_some() {
                let chart = Chart {
                    points: self.trace.points(),
                    reserved: sample.reserved,
                    style: Style::from_environment(),
                };
                text.push_str(&format!("\n\n{chart}\n"));
            }
            self.terminal.message(&text);
        } else if self.terminal.in_foreground() && !options.quiet {
            self.terminal.message(&summary.short());
        }
        (sample.stage, summary, lost)
    }
}
