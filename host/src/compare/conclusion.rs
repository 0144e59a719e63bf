//! The end of a comparison: printing the table, writing the files, and the exit status.

use super::agreement::Agreement;
use super::files::{Files, Written};
use crate::failure::Failure;
use crate::stdout;
use crate::text::Styled;

/// The exit status if a run failed or ratios differ from those of another comparison.
const STATUS_SOME_FAILED: u8 = 1;

/// Prints `table` and the agreement with another comparison, and writes `files`. The files are
/// written even if printing fails.
///
/// Returns the exit status: `STATUS_SOME_FAILED` if `failed`, if ratios differ from those of the
/// other comparison or if the two have no ratio in common, else 0. Fails if printing or writing
/// fails.
pub(crate) fn conclude(
    report: &impl Written,
    table: Styled,
    agreement: Option<&Agreement>,
    failed: bool,
    files: Files,
) -> Result<u8, Failure> {
    let mut text = table;
    if let Some(agreement) = agreement {
        if !text.is_empty() {
            text.push("\n");
        }
        text.push(&agreement.text());
    }
    // The files are written even if printing fails, for example with `| head`.
    let printed = stdout::print_styled(&text);
    files.write(report, agreement)?;
    printed?;
    let differs = agreement.is_some_and(|agreement| !agreement.holds());
    Ok(if failed || differs {
        STATUS_SOME_FAILED
    } else {
        0
    })
}
