//! Figure 4, `boots`: many boots in a row, on 1 to 8 CPUs, all end as they should.
//!
//! Each boot runs a busybox shell that makes a pipe and children, checks every byte of its
//! output and its exit status, and differs from the one before it.

use crate::Failure;
use crate::guest::{Guests, Reporting, Shape};
use crate::stock;
use serde::Serialize;
use std::time::Duration;

const MEMORY_MIB: u64 = 256;
const MAX_CPUS: u32 = 8;
const LIMIT: Duration = Duration::from_secs(60);

/// What a series of boots gave.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Boots {
    pub(crate) boots: u32,
    /// One line for each boot that did not end as it should.
    pub(crate) failures: Vec<String>,
    /// Wall time of one boot, program and end, in seconds.
    pub(crate) median_seconds: f64,
    pub(crate) slowest_seconds: f64,
}

pub(crate) fn measure(guests: &Guests, boots: u32) -> Result<Boots, Failure> {
    let busybox = stock::busybox()?;
    let mut failures = Vec::new();
    let mut seconds = Vec::new();
    for boot in 0..boots {
        let cpus = boot % MAX_CPUS + 1;
        let shape = Shape {
            memory_mib: MEMORY_MIB,
            cpus,
            reporting: Reporting::On,
            icount: false,
        };
        let status = i32::try_from(boot % 100).unwrap_or(0);
        let script = format!(
            "for i in 1 2 3; do echo boot {boot} $i; done | while read line; do echo \"$line\"; done; \
             (exit 3) & wait $!; echo child $?; exit {status}"
        );
        let expected = [1, 2, 3]
            .map(|i| format!("boot {boot} {i}"))
            .into_iter()
            .chain(["child 3".to_owned()])
            .collect::<Vec<_>>();
        match guests.on_ebb(shape, &busybox, &["sh", "-c", &script], LIMIT) {
            Ok(record) => {
                seconds.push(record.elapsed.as_secs_f64());
                let said: Vec<_> = record.lines.iter().map(|line| line.text.clone()).collect();
                if said != expected || record.status.code() != Some(status) {
                    let told: Vec<_> = record.errors.iter().map(|l| l.text.clone()).collect();
                    failures.push(format!(
                        "boot {boot} on {cpus} CPUs: {} for status {status}, said {said:?}; {told:?}",
                        record.status
                    ));
                }
            }
            Err(failure) => failures.push(format!("boot {boot} on {cpus} CPUs: {failure}")),
        }
        if (boot + 1) % 10 == 0 {
            eprintln!("lab: {} boots, {} failed", boot + 1, failures.len());
        }
    }
    seconds.sort_by(f64::total_cmp);
    Ok(Boots {
        boots,
        failures,
        median_seconds: seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN),
        slowest_seconds: seconds.last().copied().unwrap_or(f64::NAN),
    })
}
