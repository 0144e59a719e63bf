//! How a comparison ends: what is printed, the files, the status.

use super::agreement::Agreement;
use super::files::{Files, Written};
use crate::failure::Failure;
use crate::stdout;
use crate::text::Styled;

/// A run failed, or ratios do not agree with those of another comparison.
const STATUS_SOME_FAILED: u8 = 1;

/// Prints a table and what `--against` found, writes the files, and returns the status of all that.
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
    // The files matter more than a table that nobody reads: `| head` must not lose them.
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
