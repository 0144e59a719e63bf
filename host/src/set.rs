//! The command `ebb set`, which changes a setting of a running guest.

use crate::failure::Failure;
use crate::machine::GiveBack;
use crate::registry::{Fleet, Presence};
use crate::stdout;
use clap::Args;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  ebb set give-back=hinting                 the one guest that runs
  ebb set --guest job give-back=off         by its name in `ebb top`, or by ebb's process number

`ebb top` shows what holds.";

/// How long `ebb set` waits for the guest to report the new setting. A guest that is stopped or
/// does not read its control port takes longer.
const TIMEOUT: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Options of `ebb set`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SetOptions {
    /// The guest: its name, or the process number of its `ebb run` [default: the only one]
    #[arg(long, value_name = "NAME")]
    guest: Option<String>,

    /// Setting to change: give-back=reporting, give-back=hinting, give-back=shared or give-back=off
    #[arg(value_name = "KNOB=VALUE")]
    knob: Knob,
}

/// A setting and its new value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Knob {
    GiveBack(GiveBack),
}

impl FromStr for Knob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("give-back", name)) => {
                GiveBack::from_name(name)
                    .map(Self::GiveBack)
                    .ok_or_else(|| {
                        let known = GiveBack::ALL.map(GiveBack::name).join(", ");
                        format!("give-back is one of: {known}")
                    })
            }
            Some((name, _)) => Err(format!("`{name}` is no knob; the only one is give-back")),
            None => Err(format!(
                "`{text}` lacks `=`; write it like give-back=hinting"
            )),
        }
    }
}

/// Runs `ebb set`: sends the new setting to the guest, waits until the guest reports it, and prints
/// it. Returns the exit status 0. Fails with [`Failure::Usage`] if no single guest matches, the
/// guest refuses or does not answer, or does not report the setting within 3 s. Fails with
/// [`Failure::Output`] if stdout cannot be written to.
pub(crate) fn run(options: &SetOptions) -> Result<u8, Failure> {
    let Knob::GiveBack(mode) = options.knob;
    let mut fleet = Fleet::new();
    let (id, figures) = fleet.find(options.guest.as_deref())?;
    let name = figures.name;
    fleet.set_give_back(&id, mode).map_err(|error| {
        Failure::Usage(format!(
            "{name} cannot be set to give-back={}: {error}",
            mode.name()
        ))
    })?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(Presence::Here(figures)) = fleet.figures().get(&id)
            && figures.give_back == mode.name()
        {
            stdout::print(&format!("{name}: give-back={}\n", mode.name()))?;
            return Ok(0);
        }
        if Instant::now() >= deadline {
            return Err(Failure::Usage(format!(
                "{name} has not switched to give-back={} in time; `ebb run --verbose` shows why",
                mode.name()
            )));
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_read_and_others_refused() {
        assert_eq!(
            "give-back=hinting".parse(),
            Ok(Knob::GiveBack(GiveBack::Hinting))
        );
        for (text, why) in [
            ("give-back=now", "off, reporting, hinting"),
            ("memory=1G", "no knob"),
            ("give-back", "lacks"),
        ] {
            let error = text.parse::<Knob>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
