//! `ebb reclaim`, which asks a guest for memory, and `ebb pause` and `ebb resume`. The comments on
//! the fields of results are the text of docs/json.md.

mod amount;
mod by_balloon;
mod cpus;
mod json;

use crate::failure::Failure;
use crate::machine::KernelKind;
use crate::reclaim::steps;
use crate::registry::{Figures, Fleet, GuestId, Presence};
use crate::stdout;
use crate::text::{Size, stderr};
use amount::{mebibytes, resident_change, shrinking};
#[cfg(test)]
pub(crate) use by_balloon::{BalloonOutcome, Deflated};
use clap::Args;
pub(crate) use cpus::{PauseOptions, ResumeOptions, pause, resume};
use ebb_wire::Reclaim;
use json::print_json;
use serde::Serialize;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  ebb reclaim                               what is free in the one guest that runs
  ebb reclaim --guest job --target 256M     256 MiB: what is free, then the page cache, then compaction
  ebb reclaim --all --json                  every step, for scripts
  ebb reclaim --qmp /run/vm.qmp --target 1G any QEMU with a balloon, by its monitor
  ebb reclaim --qmp /run/vm.qmp --deflate   lets go of all that is in its balloon

A line has the change of the resident memory in a step, and its size before and after. \"more\" means that the guest used more
memory meanwhile. The guest's mode (`ebb set give-back=MODE`) does not matter. Of a paused guest the host takes what is free; the
other steps need the guest's CPUs, and are left out. The status is 1 if a target was missed or a step left out.";

/// The timeout for a step in which the guest gives nothing back. Such a guest is stopped or far too
/// busy.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which the guest is polled, the same as that of its run.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The exit status if the target was missed.
const MISSED: u8 = 1;

/// Options of `ebb reclaim`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReclaimOptions {
    /// The guest: its name, or the process number of its `ebb run` [default: the only one]
    #[arg(long, value_name = "NAME")]
    guest: Option<String>,

    /// Reclaim from another QEMU, by the Unix socket of its QMP monitor: inflates its balloon and
    /// deflates it again. Without --target it takes the memory that the guest can spare
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["guest", "all"])]
    qmp: Option<PathBuf>,

    /// Deflate the balloon of --qmp completely, for example after an ebb that was killed
    #[arg(long, requires = "qmp", conflicts_with = "target")]
    deflate: bool,

    /// Take steps until this amount is back on the host [default: free memory only]
    #[arg(long, value_name = "SIZE", conflicts_with = "all")]
    target: Option<Size>,

    /// Take every step, of one guest; not all guests
    #[arg(long)]
    all: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The result of `ebb reclaim`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Outcome {
    /// The guest's name.
    guest: String,
    /// The process number of its `ebb run`.
    pid: u32,
    /// The value of `--target`. Null without it.
    target_bytes: Option<u64>,
    /// The guest's resident memory before the first step.
    resident_before_bytes: u64,
    /// The guest's resident memory after the last step.
    resident_after_bytes: u64,
    /// The amount by which the resident memory shrank; 0 if it grew.
    reclaimed_bytes: u64,
    /// The steps that were performed, in order.
    steps: Vec<Step>,
}

/// The result of one reclaim step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Step {
    /// The step's name: `free`, `cache` or `compact`.
    step: &'static str,
    /// The amount by which the resident memory shrank during the step; 0 if it grew, because the
    /// guest used more memory meanwhile.
    reclaimed_bytes: u64,
    /// The guest's resident memory after the step.
    resident_after_bytes: u64,
}

impl Outcome {
    /// Creates the result before the first step.
    fn new(figures: &Figures, target: Option<Size>) -> Self {
        Self {
            guest: figures.name.clone(),
            pid: figures.pid,
            target_bytes: target.map(Size::bytes),
            resident_before_bytes: figures.resident_bytes,
            resident_after_bytes: figures.resident_bytes,
            reclaimed_bytes: 0,
            steps: Vec::new(),
        }
    }

    /// Records the resident memory after `step`. Memory that the program allocates during the step
    /// reduces its result.
    fn add(&mut self, step: Reclaim, resident: u64) {
        self.steps.push(Step {
            step: step.name(),
            reclaimed_bytes: self.resident_after_bytes.saturating_sub(resident),
            resident_after_bytes: resident,
        });
        self.resident_after_bytes = resident;
        self.reclaimed_bytes = self.resident_before_bytes.saturating_sub(resident);
    }

    /// Returns whether the target is reached. Returns `true` if there is none.
    fn is_reached(&self) -> bool {
        self.target_bytes
            .is_none_or(|target| self.reclaimed_bytes >= target)
    }
}

/// Runs `ebb reclaim`: performs the steps one after the other until the target is reached, and
/// prints the result of each step. With `--qmp`, inflates or deflates the balloon of another QEMU
/// instead.
///
/// Returns the exit status: 0, or `MISSED` if the target was missed or a step was left out because
/// the guest is paused. Fails if no guest is found, a step fails, or the guest gives nothing back
/// for 30 s.
pub(crate) fn run(options: &ReclaimOptions) -> Result<u8, Failure> {
    if let Some(path) = &options.qmp {
        return if options.deflate {
            by_balloon::deflate(path, options.json)
        } else {
            by_balloon::run(path, options.target, options.json)
        };
    }
    let mut fleet = Fleet::new();
    let (id, figures) = fleet.find(options.guest.as_deref())?;
    let mut outcome = Outcome::new(&figures, options.target);
    let steps: &[_] = match (options.all, options.target) {
        (false, None) => &[Reclaim::Free],
        // The balloon starts from empty in each step, so the last step takes what the first would.
        (true, _) if figures.kernel == KernelKind::Linux => &[Reclaim::Cache],
        _ => steps(figures.kernel),
    };
    let mut progress = Progress::new(!options.json);
    let mut left_out = None;
    for &step in steps {
        // If the first step is refused, the run itself says why. So it is sent even to a stopped
        // guest.
        if !outcome.steps.is_empty() && stands_still(&mut fleet, &id) {
            left_out = Some(step);
            break;
        }
        let resident = take(&mut fleet, &id, step, &mut progress).map_err(|why| {
            Failure::Usage(format!("cannot reclaim memory of {}: {why}", outcome.guest))
        })?;
        progress.clear();
        let before = outcome.resident_after_bytes;
        outcome.add(step, resident);
        if !options.json {
            let told = resident_change(before, resident);
            stdout::print(&format!("{:<8} {told}\n", step.name()))?;
        }
        if options.target.is_some() && outcome.is_reached() {
            break;
        }
    }
    if options.json {
        print_json(&outcome)?;
    } else {
        let told = resident_change(outcome.resident_before_bytes, outcome.resident_after_bytes);
        stdout::print(&format!("{}: {}\n", outcome.guest, told.trim_start()))?;
    }
    if let Some(step) = left_out {
        stderr::say(&format!(
            "ebb: {} is paused, and step `{}` needs its CPUs; resume them with `ebb resume`",
            outcome.guest,
            step.name()
        ));
        return Ok(MISSED);
    }
    if outcome.is_reached() {
        return Ok(0);
    }
    if let Some(target) = options.target {
        stderr::say(&format!(
            "ebb: {} gave back {} of {target}: no more of its memory can be reclaimed",
            outcome.guest,
            shrinking(outcome.resident_before_bytes, outcome.resident_after_bytes)
        ));
    }
    Ok(MISSED)
}

/// Returns whether the guest's virtual CPUs are stopped. Returns `false` if the guest does not
/// answer.
fn stands_still(fleet: &mut Fleet, id: &GuestId) -> bool {
    match fleet.figures().get(id) {
        Some(Presence::Here(figures)) => figures.standstill.is_some(),
        Some(Presence::Silent) | None => false,
    }
}

/// Asks the guest for one step and waits for its end. Returns the guest's resident memory in bytes
/// afterwards. Fails if the guest refuses or ends, the step fails, or the timeout passes.
fn take(
    fleet: &mut Fleet,
    id: &GuestId,
    step: Reclaim,
    progress: &mut Progress,
) -> Result<u64, String> {
    let number = fleet.reclaim(id, step).map_err(|error| error.to_string())?;
    let mut least = u64::MAX;
    let mut deadline = Instant::now() + TIMEOUT;
    loop {
        thread::sleep(LOOK_EVERY);
        match fleet.figures().get(id) {
            None => return Err("it has ended".into()),
            Some(Presence::Here(figures)) => {
                if figures.reclaimed.is_some_and(|done| is_done(done, number)) {
                    return if figures.reclaim_failed != Some(number) {
                        Ok(figures.resident_bytes)
                    } else if figures.standstill.is_some() {
                        Err(format!(
                            "the guest is paused, and step `{}` needs its CPUs; \
                             resume them with `ebb resume`",
                            step.name()
                        ))
                    } else {
                        Err(format!(
                            "step `{}` failed; `ebb run --verbose` shows why",
                            step.name()
                        ))
                    };
                }
                progress.show(step, figures.resident_bytes);
                if figures.resident_bytes < least {
                    least = figures.resident_bytes;
                    deadline = Instant::now() + TIMEOUT;
                }
            }
            Some(Presence::Silent) => {}
        }
        if Instant::now() >= deadline {
            let seconds = TIMEOUT.as_secs();
            return Err(format!(
                "no memory came back for {seconds} s, and step `{}` has not finished; \
                 `ebb run --verbose` shows why",
                step.name()
            ));
        }
    }
}

/// The progress of a step, shown on a terminal.
struct Progress {
    shown: bool,
    /// The guest's resident memory at the start of the step.
    before: Option<u64>,
}

impl Progress {
    fn new(wanted: bool) -> Self {
        Self {
            shown: wanted && stderr::is_terminal(),
            before: None,
        }
    }

    fn show(&mut self, step: Reclaim, resident: u64) {
        let before = *self.before.get_or_insert(resident);
        if self.shown {
            let so_far = mebibytes(before.saturating_sub(resident));
            stderr::show(&format!("{:<8} {so_far:>9} …", step.name()));
        }
    }

    fn clear(&mut self) {
        self.before = None;
        if self.shown {
            stderr::wipe();
        }
    }
}

/// Returns whether the request `number` is finished, if `done` is the last finished one. Numbers
/// wrap around.
fn is_done(done: u32, number: u32) -> bool {
    done != 0 && done.wrapping_sub(number).cast_signed() >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_and_targets_are_reached() {
        let mut outcome = Outcome {
            guest: "job".into(),
            pid: 7,
            target_bytes: Some(150),
            resident_before_bytes: 1000,
            resident_after_bytes: 1000,
            reclaimed_bytes: 0,
            steps: Vec::new(),
        };
        outcome.add(Reclaim::Free, 900);
        assert!(!outcome.is_reached());
        // The program allocated more than the step gave back.
        outcome.add(Reclaim::Cache, 950);
        assert_eq!((outcome.reclaimed_bytes, outcome.is_reached()), (50, false));
        outcome.add(Reclaim::Compact, 850);
        assert_eq!((outcome.reclaimed_bytes, outcome.is_reached()), (150, true));
        let of_steps: Vec<_> = outcome
            .steps
            .iter()
            .map(|step| step.reclaimed_bytes)
            .collect();
        assert_eq!(of_steps, [100, 0, 100]);
        let after: Vec<_> = outcome
            .steps
            .iter()
            .map(|step| step.resident_after_bytes)
            .collect();
        assert_eq!(after, [900, 950, 850]);
        let json = serde_json::to_value(&outcome).expect("it is JSON");
        assert_eq!(
            crate::pages::problems_of("reclaim", &json),
            Vec::<String>::new()
        );
    }

    #[test]
    fn lines_add_up_where_a_guest_grows_meanwhile() {
        const MIB: u64 = 1 << 20;
        let resident = [900 * MIB, 400 * MIB, 412 * MIB, 300 * MIB];
        let lines = resident
            .windows(2)
            .map(|pair| resident_change(pair[0], pair[1]));
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                " 500.0 MiB back, resident 900.0 MiB → 400.0 MiB",
                "  12.0 MiB more, resident 400.0 MiB → 412.0 MiB",
                " 112.0 MiB back, resident 412.0 MiB → 300.0 MiB",
            ]
        );
    }

    #[test]
    fn numbers_go_round() {
        assert!(!is_done(0, 1));
        assert!(!is_done(1, 2));
        assert!(is_done(2, 2) && is_done(3, 2));
        assert!(is_done(1, u32::MAX));
    }
}
