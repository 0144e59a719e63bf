//! Figure 2, `start`: what a guest takes before its program does anything.
//!
//! The program is `idle`: it reads `CLOCK_MONOTONIC` first of all and prints it. Both kernels
//! start that clock near their entry, Linux a little later than Ebb. Resident memory is taken at
//! the moment when the line reaches the host.

use crate::Failure;
use crate::guest::{Guests, Kind, Reporting, Shape};
use serde::Serialize;
use std::time::Duration;

/// Guest sizes, the and the one that stock Linux is quoted for.
pub(crate) const MEMORY_MIB: [u64; 3] = [1024, 2048, 16384];
const LIMIT: Duration = Duration::from_secs(60);

/// What one guest took.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Started {
    pub(crate) guest: Kind,
    pub(crate) shape: Shape,
    /// The guest's clock at the program's first statement.
    pub(crate) first_user_ns: u64,
    /// From the start of the host's process until the program's line came.
    pub(crate) wall_seconds: f64,
    pub(crate) resident_bytes: u64,
}

pub(crate) fn measure(guests: &Guests, kind: Kind, memory_mib: u64) -> Result<Started, Failure> {
    let shape = Shape {
        memory_mib,
        cpus: 1,
        reporting: Reporting::On,
        icount: false,
    };
    let record = guests.experiment(kind, shape, &["idle", "0"], LIMIT)?;
    let line = record.line_with("idle: ready at")?;
    let first_user_ns = line
        .text
        .split_whitespace()
        .nth(3)
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| Failure::Guest(format!("no time in {:?}", line.text)))?;
    let resident_bytes = line
        .resident_bytes
        .ok_or_else(|| Failure::Guest("the guest's RAM was not found in time".to_owned()))?;
    let wall_seconds = line.at.as_secs_f64();
    Ok(Started {
        guest: kind,
        shape,
        first_user_ns,
        wall_seconds,
        resident_bytes,
    })
}
