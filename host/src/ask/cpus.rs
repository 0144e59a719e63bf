//! `ebb pause` and `ebb resume`: stop and resume the virtual CPUs of guests.

use super::amount::mebibytes;
use crate::failure::Failure;
use crate::guest::Stop;
use crate::qemu::{StoppedBy, Wish};
use crate::registry::{Fleet, GuestId, Presence};
use crate::stdout;
use clap::Args;
use std::thread;
use std::time::{Duration, Instant};

const PAUSE_EXAMPLES: &str = "\
Examples:
  ebb pause                                 the one guest that runs
  ebb pause --guest job                     by its name in `ebb top`, or by ebb's process number
  ebb pause --all                           every guest of yours

A paused guest takes no CPU of the host. What is free in it goes back at once, unless its mode is off (then
`ebb reclaim` takes it), its kernel is Linux, or it runs with --icount. On TCG its clocks and timers stand still; on KVM they
go on. Ctrl-C and other signals for the program resume it.";

const RESUME_EXAMPLES: &str = "\
Examples:
  ebb resume                                the one guest that runs
  ebb resume --guest job                    by its name in `ebb top`, or by ebb's process number
  ebb resume --all                          every guest of yours";

/// The timeout for QEMU to stop or resume the CPUs. It takes longer only if its disks do not
/// answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The interval at which guests are polled.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Options of `ebb pause`.
#[derive(Args, Debug)]
#[command(after_help = PAUSE_EXAMPLES)]
pub(crate) struct PauseOptions {
    #[command(flatten)]
    selector: GuestSelector,
}

/// Options of `ebb resume`.
#[derive(Args, Debug)]
#[command(after_help = RESUME_EXAMPLES)]
pub(crate) struct ResumeOptions {
    #[command(flatten)]
    selector: GuestSelector,
}

/// Which guests are meant.
#[derive(Args, Debug)]
struct GuestSelector {
    /// The guest: its name, or the process number of its `ebb run` [default: the only one]
    #[arg(long, value_name = "NAME")]
    guest: Option<String>,

    /// All guests of this user
    #[arg(long, conflicts_with = "guest")]
    all: bool,
}

/// Stops the virtual CPUs of the chosen guests, and prints each guest's resident memory before and
/// after. Only says so of a guest that is paused already.
///
/// Returns the exit status 0, also if `--all` finds no guest. Fails if the one guest is not found,
/// or if a guest cannot be paused within 10 s. The other guests are paused nevertheless. Failures
/// after the first are printed.
pub(crate) fn pause(options: &PauseOptions) -> Result<u8, Failure> {
    all(&options.selector, Wish::Pause)
}

/// Resumes the virtual CPUs of the chosen guests. Only says so of a guest that runs already.
///
/// Returns the exit status 0, also if `--all` finds no guest. Fails if the one guest is not found,
/// or if a guest cannot be resumed within 10 s, for example because a signal has stopped QEMU. The
/// other guests are resumed nevertheless. Failures after the first are printed.
pub(crate) fn resume(options: &ResumeOptions) -> Result<u8, Failure> {
    all(&options.selector, Wish::Resume)
}

/// Whether a guest has reached the wanted state.
enum Outcome {
    /// Not yet.
    Waits,
    /// Yes, with the text to print.
    Is(String),
    /// It cannot reach it, for this reason.
    Fails(String),
}

/// Sends the wish to all chosen guests, then waits for all of them. Prints all failures but the
/// first, which is returned when no guest is left to wait for. A stdout that cannot be written to
/// is a failure like that of a guest.
fn all(selector: &GuestSelector, wish: Wish) -> Result<u8, Failure> {
    let mut fleet = Fleet::new();
    let guests = if selector.all {
        let found = fleet.figures().into_iter();
        let here = found.filter_map(|(id, presence)| match presence {
            Presence::Here(figures) => Some((id, figures)),
            Presence::Silent => None,
        });
        here.collect()
    } else {
        vec![fleet.find(selector.guest.as_deref())?]
    };
    let mut waiting = Vec::new();
    let mut failures = Vec::new();
    let mut printed = Ok(());
    for (id, figures) in guests {
        let name = figures.name.clone();
        match before(figures.standstill, wish) {
            Outcome::Is(text) => printed = printed.and(stdout::print(&format!("{name}: {text}\n"))),
            Outcome::Fails(why) => failures.push(format!("{name}: {why}")),
            Outcome::Waits => match fleet.cpus(&id, wish) {
                Ok(()) => waiting.push((id, name)),
                Err(error) => failures.push(format!("{name}: {error}")),
            },
        }
    }
    let printed = printed.and(wait(&mut fleet, waiting, wish, &mut failures));
    let failures = failures.into_iter().map(Failure::Usage);
    let mut failures = failures.chain(printed.err());
    let Some(first) = failures.next() else {
        return Ok(0);
    };
    failures.for_each(|failure| failure.print());
    Err(first)
}

/// Polls the `waiting` guests until all have followed or the timeout has passed. Prints each that
/// has followed, and appends the others to `failures`. Fails at the end if stdout could not be
/// written to.
fn wait(
    fleet: &mut Fleet,
    mut waiting: Vec<(GuestId, String)>,
    wish: Wish,
    failures: &mut Vec<String>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + TIMEOUT;
    let mut printed = Ok(());
    while !waiting.is_empty() {
        let over = Instant::now() >= deadline;
        let found = fleet.figures();
        let mut still = Vec::new();
        for (id, name) in waiting {
            let outcome = match found.get(&id) {
                None => Outcome::Fails("it has ended".into()),
                Some(Presence::Here(figures)) => {
                    after(figures.standstill, figures.resident_bytes, wish, over)
                }
                Some(Presence::Silent) => Outcome::Waits,
            };
            match outcome {
                Outcome::Is(text) => {
                    printed = printed.and(stdout::print(&format!("{name}: {text}\n")));
                }
                Outcome::Fails(why) => failures.push(format!("{name}: {why}")),
                Outcome::Waits if over => {
                    let seconds = TIMEOUT.as_secs();
                    failures.push(format!(
                        "{name}: QEMU has not carried out the command within {seconds} s"
                    ));
                }
                Outcome::Waits => still.push((id, name)),
            }
        }
        waiting = still;
        if !waiting.is_empty() {
            thread::sleep(LOOK_EVERY);
        }
    }
    printed
}

/// Returns whether the guest is in the wanted state already, or cannot reach it. Otherwise returns
/// `Waits`, and the wish must be sent.
fn before(standstill: Option<Stop>, wish: Wish) -> Outcome {
    match (standstill.map(|standstill| standstill.by), wish) {
        (Some(StoppedBy::Signal), _) => Outcome::Fails(StoppedBy::BY_SIGNAL.into()),
        (Some(StoppedBy::Ebb), Wish::Pause) => Outcome::Is("is paused already".into()),
        (None, Wish::Resume) => Outcome::Is("runs already".into()),
        _ => Outcome::Waits,
    }
}

/// Returns whether a guest that got the wish has followed. `resident` is its resident memory in
/// bytes. `over` says that the timeout has passed.
fn after(standstill: Option<Stop>, resident: u64, wish: Wish, over: bool) -> Outcome {
    match (standstill, wish) {
        (None, Wish::Resume) => Outcome::Is("runs".into()),
        (Some(standstill), Wish::Pause)
            if standstill.by == StoppedBy::Ebb && (standstill.settled || over) =>
        {
            let before = mebibytes(standstill.resident_bytes);
            let now = mebibytes(resident);
            Outcome::Is(format!("paused, resident {before} → {now}"))
        }
        (
            Some(Stop {
                by: StoppedBy::Signal,
                ..
            }),
            _,
        ) if over => Outcome::Fails(
            "a signal has stopped QEMU, which does what it was asked once SIGCONT lets it go on"
                .into(),
        ),
        _ => Outcome::Waits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands(by: StoppedBy, settled: bool) -> Option<Stop> {
        Some(Stop {
            by,
            resident_bytes: 400 << 20,
            settled,
        })
    }

    fn said(outcome: Outcome) -> String {
        match outcome {
            Outcome::Waits => "…".into(),
            Outcome::Is(text) => text,
            Outcome::Fails(why) => format!("failed: {why}"),
        }
    }

    #[test]
    fn what_is_so_already_is_said() {
        let (ebb, signal) = (StoppedBy::Ebb, StoppedBy::Signal);
        let of = |standstill, wish| said(before(standstill, wish));
        assert_eq!(of(None, Wish::Pause), "…");
        assert_eq!(of(None, Wish::Resume), "runs already");
        assert_eq!(of(stands(ebb, true), Wish::Pause), "is paused already");
        assert_eq!(of(stands(ebb, true), Wish::Resume), "…");
        for wish in [Wish::Pause, Wish::Resume] {
            assert!(of(stands(signal, true), wish).contains("SIGCONT"));
        }
    }

    #[test]
    fn a_guest_is_paused_when_its_memory_is_back() {
        let of = |standstill, over| said(after(standstill, 3 << 20, Wish::Pause, over));
        let ebb = StoppedBy::Ebb;
        assert_eq!(of(None, true), "…");
        assert_eq!(of(stands(ebb, false), false), "…");
        let text = "paused, resident 400.0 MiB → 3.0 MiB";
        assert_eq!(of(stands(ebb, true), false), text);
        assert_eq!(of(stands(ebb, false), true), text);
        let signal = stands(StoppedBy::Signal, true);
        assert_eq!(of(signal, false), "…");
        assert!(of(signal, true).contains("once SIGCONT"));
        let resumed = |standstill| said(after(standstill, 3 << 20, Wish::Resume, false));
        assert_eq!(resumed(None), "runs");
        assert_eq!(resumed(stands(ebb, true)), "…");
    }
}
