//! JSON output of `ebb reclaim`.

use crate::failure::Failure;
use crate::stdout;
use crate::text::printable_json;
use serde::Serialize;

/// Prints `outcome` to stdout as one JSON object on a line. Fails if `outcome` cannot be converted
/// or stdout cannot be written.
pub(super) fn print_json(outcome: &impl Serialize) -> Result<(), Failure> {
    let text = printable_json(outcome, false).map_err(|error| {
        Failure::Usage(format!("what was reclaimed cannot be written: {error}"))
    })?;
    stdout::print(&format!("{text}\n"))
}
