//! What was reclaimed, for programs.

use crate::failure::Failure;
use crate::stdout;
use crate::text::printable_json;
use serde::Serialize;

/// Prints what came of it as one object.
pub(super) fn print_json(outcome: &impl Serialize) -> Result<(), Failure> {
    let text = printable_json(outcome, false).map_err(|error| {
        Failure::Usage(format!("what was reclaimed cannot be written: {error}"))
    })?;
    stdout::print(&format!("{text}\n"))
}
