//! Looks at a guest until it ends, and says what it came to.

use super::accel::Choice;
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
use crate::guest::{Kernel, Patience};
use crate::qemu::{BootFiles, Ended, Qemu, Wish, cpu_time, overhead_bytes, overhead_pss};
use crate::reclaim::Reclaimed;
use crate::registry::Published;
use crate::streams::{Control, input_is_terminal};
use crate::text::Size;
use crate::text::Style;
use crate::text::Terminal;
use signal_hook::consts::SIGKILL;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the guest is looked at.
const TICK: Duration = Duration::from_millis(50);
/// The same of one that stands still: when something changes, a bell calls for a look.
const TICK_STILL: Duration = Duration::from_secs(1);
/// How often it is looked for the program's start, so that this moment is known.
const GLANCE: Duration = Duration::from_millis(5);
/// The status line is drawn at every so many looks, since people read no faster.
const TICKS_A_LINE: u64 = 2;
/// QEMU's own memory changes slowly and costs a walk of its page tables to ask for.
const TICKS_AN_OVERHEAD: u64 = 10;
/// The kernel looks at every page of the guest's to tell QEMU's part in them: no more than this part of the time.
const PSS_SHARE: u32 = 200;
/// What somebody at a terminal does not see of a program that reads from it.
const READS: &str = "ebb: the program reads what you type here, line by line, and shells show no \
prompt (Ctrl-D ends the input); `ebb run -it` gives it a terminal";
/// A guest that is through and has nothing more to write ends within this, or is ended.
const LINGER: Duration = Duration::from_secs(5);

/// What looks at the guest while it runs, and where that goes.
pub(crate) struct Watch<'a> {
    sampler: Sampler,
    trace: Trace,
    timeline: Option<Timeline>,
    line: Option<Style>,
    /// Whether somebody types what the program reads.
    typed: bool,
    terminal: &'a Terminal,
    memory: Size,
    overhead: Option<u64>,
    pss: Option<u64>,
    /// When to ask for it again.
    pss_due: Instant,
    published: Arc<Published>,
    /// Until the program runs.
    boot_files: Option<BootFiles>,
    /// What a guest has for sending its files after its time, if any are wanted.
    grace: Option<Duration>,
    pub(crate) timed_out: bool,
    pub(crate) started: Option<Started>,
}

/// What was seen at last.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// QEMU ended.
    Ended(Ended),
    /// The kernel does not begin, within what it is given for that.
    Hung,
}

/// Waits for a kernel to begin. Looks are counted rather than time, so that time in which ebb was
/// stopped, or did not get to look, is not held against the guest.
#[derive(Debug)]
struct Vigil {
    patience: Patience,
    looks: u32,
    /// The work of the host's CPUs when it was last seen to grow, and the looks since.
    work: Duration,
    idle: u32,
}

/// Less work than this in [`HALTED`] is that of a guest whose CPUs are halted.
const WORK_MIN: Duration = Duration::from_millis(100);
const HALTED: Duration = Duration::from_secs(20);

impl Vigil {
    fn new(patience: Patience) -> Self {
        Self {
            patience,
            looks: 0,
            work: Duration::ZERO,
            idle: 0,
        }
    }

    /// Counts a look at a guest that has not begun; whether to give it up.
    fn is_over(&mut self, work: Duration) -> bool {
        self.looks += 1;
        if work >= self.work + WORK_MIN {
            self.work = work;
            self.idle = 0;
        } else {
            self.idle += 1;
        }
        TICK * self.looks > self.patience.wait
            || work > self.patience.work
            || TICK * self.idle > HALTED
    }
}

impl<'a> Watch<'a> {
    /// A watch that begins now.
    pub(crate) fn new(
        options: &RunOptions,
        terminal: &'a Terminal,
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
            // Under `-t` the whole screen is the program's.
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

    /// Looks every [`TICK`] until QEMU has ended.
    pub(crate) fn until_end(
        &mut self,
        qemu: &mut Qemu,
        outputs: &Outputs,
        control: &Control,
        mut deadline: Option<Instant>,
        patience: Option<Patience>,
    ) -> Result<Seen, Failure> {
        let mut next = Instant::now();
        let mut vigil = patience.map(Vigil::new);
        let mut through: Option<Instant> = None;
        let mut told = false;
        for tick in 0u64.. {
            self.sampler.standing().vcpus().heed();
            let still = self.sampler.standing().vcpus().look().is_some();
            let sample = self.look(tick);
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
            // One that stands still has not said all yet.
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
                    // Files are wanted: the program ends, and what is there can be sent.
                    Some(grace) if !self.timed_out => {
                        control.signal(SIGKILL);
                        let _ = self.sampler.standing().vcpus().ask(Wish::Resume);
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
                && let Some(vigil) = &mut vigil
                && vigil.is_over(cpu_time(qemu.pid()).unwrap_or_default().sum())
            {
                return Ok(Seen::Hung);
            }
            // On a grid, so that looking takes no time; a late look is not made up for.
            next = if still {
                deadline.map_or(now + TICK_STILL, |deadline| {
                    deadline.min(now + TICK_STILL).max(now + GLANCE)
                })
            } else {
                (next + TICK).max(now)
            };
            if let Some(ended) = self.pause_until(next, still, qemu)? {
                return Ok(Seen::Ended(ended));
            }
        }
        unreachable!("2^64 ticks are 29 thousand million years")
    }

    /// Waits for the next look, which may be due early, or for QEMU's end. Glances at a guest that is not `still` until its
    /// program runs.
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
            let pause = if self.started.is_none() && !still {
                left.min(GLANCE)
            } else {
                left
            };
            let vcpus = self.sampler.standing().vcpus();
            if let Some(ended) = qemu.wait(pause, vcpus).map_err(failed)? {
                return Ok(Some(ended));
            }
            let rung = vcpus.heed();
            if self.started.is_none() {
                self.started = self.sampler.started();
                if self.started.is_some()
                    && let Some(files) = self.boot_files.take()
                {
                    // If not, they stay as they are until QEMU ends; the program is not the worse for it.
                    let _ = files.give_back();
                }
            }
            if pause == left || rung {
                return Ok(None);
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

    fn look(&mut self, tick: u64) -> Sample {
        let sample = self.sampler.sample();
        self.trace.add(sample);
        self.published.publish(&sample, self.overhead, self.pss);
        if let Some(timeline) = &mut self.timeline {
            timeline.add(&sample);
        }
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

    /// Gives the timeline back, as if nothing had been looked at.
    pub(crate) fn give_up(self) -> Option<Timeline> {
        self.terminal.clear();
        let mut timeline = self.timeline;
        if let Some(timeline) = &mut timeline {
            timeline.restart();
        }
        timeline
    }

    /// The last look, and what the run came to. The guest's memory is ours, so it can be read
    /// when QEMU is gone.
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
        if options.summary || (self.terminal.in_foreground() && !options.quiet) {
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
        (sample.stage, summary, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vigil() -> Vigil {
        Vigil::new(Patience {
            attempts: 1,
            work: Duration::from_secs(10),
            wait: Duration::from_secs(60),
        })
    }

    /// Looks until it is over, at a guest that works for `share` thousandths of the time.
    fn looks(mut vigil: Vigil, share: u32) -> u32 {
        let looks = (1..10_000).find(|look| vigil.is_over(TICK * *look * share / 1000));
        looks.expect("it ends")
    }

    #[test]
    fn a_kernel_that_does_not_begin_is_given_up() {
        let seconds = |looks: u32| (TICK * looks).as_secs();
        // It spins; it gets little of a busy host; it is halted.
        assert_eq!(seconds(looks(vigil(), 1000)), 10);
        assert_eq!(seconds(looks(vigil(), 100)), 60);
        assert_eq!(seconds(looks(vigil(), 0)), 20);
    }
}
