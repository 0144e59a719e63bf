//! Options of `ebb top`.

use super::columns::Column;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Keys: up and down select, Enter shows one guest with its curve and the map of its memory,
s and r sort, ? explains, q ends.

Examples:
  ebb top
  ebb top --sort gap
  ebb top --qmp /run/vm.qmp       with a guest that ebb did not start, by its balloon
  ebb top --once
  ebb top --once --json | jq '.guests[] | {name, resident_bytes}'";

/// Options of `ebb top`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopOptions {
    /// Print the guests once and stop
    #[arg(long)]
    pub(crate) once: bool,

    /// With --once: print JSON, in bytes and seconds, for scripts
    #[arg(long, requires = "once")]
    pub(crate) json: bool,

    /// Also show a guest that ebb did not start, by the Unix socket of its QMP monitor; can be
    /// repeated
    #[arg(long, value_name = "SOCKET")]
    pub(crate) qmp: Vec<PathBuf>,

    /// Column by which the guests are sorted
    #[arg(long, value_name = "COLUMN", default_value = "resident")]
    pub(crate) sort: Column,
}
