//! The text for a missing figure in a table.

use super::column::Column;
use super::give_back_mode::GiveBackMode;
use super::reports;
use super::schema::{Outcome, Row, Run};

/// Returns the text for the cell of `row` and `column`, which has no figure. It says why, as far as
/// `runs` tell: `as off` if the column was not run since it behaves like `off`, `failed`,
/// `unsupported`, `never` or `not back` if memory did not leave, `no report` if the guest did not
/// report memory while it was measured. It is a dash if the reason is
/// unknown.
pub(crate) fn word(runs: &[Run], row: &Row, column: Column) -> &'static str {
    let of_row = || runs.iter().filter(|run| run.experiment == row.experiment);
    let mut of_cell = of_row()
        .filter(|run| (run.guest, run.give_back) == column)
        .peekable();
    let (guest, mode) = column;
    if of_cell.peek().is_none() {
        // If the balloon stays empty or the host uses other pages, the guest does the same as with
        // `off`.
        let as_off = matches!(mode, GiveBackMode::Balloon | GiveBackMode::OffInBasePages)
            && of_row().any(|run| (run.guest, run.give_back) == (guest, GiveBackMode::OFF));
        return if as_off { "as off" } else { "–" };
    }
    let best = of_cell
        .clone()
        .map(|run| run.outcome)
        .min_by_key(|outcome| *outcome as u8);
    match (best, row.metric.as_str()) {
        (Some(Outcome::Failed), _) => "failed",
        (Some(Outcome::Unsupported), _) => "unsupported",
        (Some(Outcome::Ok), "half_returned" | "nearly_all_returned") => "never",
        (Some(Outcome::Ok), _) if of_cell.any(|run| reports::is_refused_in(run, row)) => {
            "no report"
        }
        (Some(Outcome::Ok), "instructions_per_gib" | "host_cpu_per_gib") => "not back",
        _ => "–",
    }
}
