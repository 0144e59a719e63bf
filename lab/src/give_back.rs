//! Figure 1, `return`: how long freed memory takes to come back to the host.
//!
//! A guest of 2 GiB with two CPUs runs `memhog 1433M`: it touches the memory, holds it for a
//! second, frees it and stays alive. The host samples the guest's RAM 25 times a second. Time 0
//! is the moment at which the program's line "freed" reaches the host.

use crate::Failure;
use crate::guest::{Guests, Kind, Reporting, Shape};
use crate::watch::Sample;
use serde::Serialize;
use std::time::Duration;

/// The guest of this figure.
pub(crate) const SHAPE: Shape = Shape {
    memory_mib: 2048,
    cpus: 2,
    reporting: Reporting::On,
    icount: false,
};
/// 1.4 GiB.
const FREED_MIB: u64 = 1433;
/// How long the program stays alive after it freed, in seconds: long enough for all to come back.
const STAY_SECONDS: &str = "30";
const LIMIT: Duration = Duration::from_secs(180);
/// Points kept of a curve, at most.
const MAX_POINTS: usize = 400;

/// What one guest did.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Returned {
    pub(crate) guest: Kind,
    pub(crate) shape: Shape,
    pub(crate) freed_bytes: u64,
    /// Resident when the program began.
    pub(crate) before_bytes: u64,
    /// Resident right before the program freed.
    pub(crate) peak_bytes: u64,
    /// From "freed" until half of the freed bytes had left the host.
    pub(crate) half_seconds: Option<f64>,
    /// From "freed" until 95 % of them had.
    pub(crate) nearly_all_seconds: Option<f64>,
    /// Resident when the program ended.
    pub(crate) end_bytes: u64,
    /// RAM less the guest's own `MemFree` when the program ended.
    pub(crate) used_bytes: u64,
    /// Seconds since "freed" and resident bytes.
    pub(crate) curve: Vec<(f64, u64)>,
}

impl Returned {
    /// Resident beyond what the guest says it uses; negative where the guest counts as used what
    /// it never touched.
    pub(crate) fn beyond_used_bytes(&self) -> i64 {
        self.end_bytes.cast_signed() - self.used_bytes.cast_signed()
    }

    /// What the program left behind: resident at the end less resident at its beginning.
    pub(crate) fn left_behind_bytes(&self) -> i64 {
        self.end_bytes.cast_signed() - self.before_bytes.cast_signed()
    }
}

pub(crate) fn measure(guests: &Guests, kind: Kind) -> Result<Returned, Failure> {
    let size = format!("{FREED_MIB}M");
    let record = guests.experiment(kind, SHAPE, &["memhog", &size, "1", STAY_SECONDS], LIMIT)?;
    let start = record.line_with("s start")?;
    let free = record.line_with("s free ")?;
    let freed = record.line_with("s freed")?;
    let end = record.line_with("s end")?;
    let resident = |line: &crate::watch::Line| {
        line.resident_bytes
            .ok_or_else(|| Failure::Guest("the guest's RAM was not found in time".to_owned()))
    };
    let free_kib = mem_free_kib(&end.text).ok_or_else(|| {
        Failure::Guest(format!(
            "no MemFree in the guest's last line: {:?}",
            end.text
        ))
    })?;
    let freed_bytes = FREED_MIB << 20;
    let peak_bytes = resident(free)?;
    let since: Vec<Sample> = record
        .samples
        .iter()
        .filter(|s| s.at >= freed.at && s.at <= end.at)
        .copied()
        .collect();
    let until = |share_percent: u64| {
        let goal = peak_bytes.saturating_sub(freed_bytes / 100 * share_percent);
        since
            .iter()
            .find(|sample| sample.resident_bytes <= goal)
            .map(|sample| (sample.at - freed.at).as_secs_f64())
    };
    let step = record.samples.len().div_ceil(MAX_POINTS).max(1);
    let curve = record
        .samples
        .iter()
        .step_by(step)
        .map(|s| {
            (
                s.at.as_secs_f64() - freed.at.as_secs_f64(),
                s.resident_bytes,
            )
        })
        .collect();
    Ok(Returned {
        guest: kind,
        shape: SHAPE,
        freed_bytes,
        before_bytes: resident(start)?,
        peak_bytes,
        half_seconds: until(50),
        nearly_all_seconds: until(95),
        end_bytes: resident(end)?,
        used_bytes: SHAPE.memory_bytes().saturating_sub(free_kib << 10),
        curve,
    })
}

/// The figure after "MemFree" in a line of `memhog`.
fn mem_free_kib(line: &str) -> Option<u64> {
    line.split("MemFree ")
        .nth(1)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_memory_of_a_phase_is_read() {
        let line = "memhog: 4.452108 s end     1433.0 MiB, MemFree 436996 kB";
        assert_eq!(mem_free_kib(line), Some(436_996));
        assert_eq!(mem_free_kib("memhog: 4.4 s end"), None);
    }
}
