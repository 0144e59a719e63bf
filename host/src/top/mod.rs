//! The command `ebb top`, which shows every guest of this user on this host.

mod amount;
mod app;
mod blocks;
mod columns;
mod curve;
mod detail;
mod draw;
mod feed;
mod help;
mod list;
mod margin;
mod once;
mod options;
mod other_qemu;
mod palette;
mod screen;
#[cfg(test)]
mod screen_tests;

#[cfg(test)]
pub(crate) use once::Listing;
pub(crate) use options::TopOptions;

use crate::failure::Failure;
use crate::registry::{Fleet, Presence};
use crate::text::one_line;
use other_qemu::OtherQemu;
use std::collections::BTreeMap;

/// Runs `ebb top`: shows the guests on the screen until the user quits, or prints them once.
/// Returns the exit status 0. Fails with [`Failure::Usage`] if a guest named by `--qmp` does not
/// answer, or if the screen is wanted without a terminal. Fails with another failure if the
/// terminal or stdout fails.
pub(crate) fn run(options: &TopOptions) -> Result<u8, Failure> {
    let mut others: Vec<_> = options
        .qmp
        .iter()
        .map(|path| OtherQemu::new(path))
        .collect();
    // A user who names a QEMU wants to see an error at once.
    let mut first = BTreeMap::new();
    for (guest, path) in others.iter_mut().zip(&options.qmp) {
        let figures = guest.look().map_err(|error| {
            Failure::Usage(format!("--qmp {}: {}", one_line(path), error.whole()))
        })?;
        first.insert(guest.id(), Presence::Here(Box::new(figures)));
    }
    if options.once {
        let mut found = Fleet::new().figures();
        found.append(&mut first);
        once::print(&found, options.sort, options.json)?;
    } else {
        screen::show(options.sort, others)?;
    }
    Ok(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::guest::HugePages;
    use crate::machine::KernelKind;
    use crate::registry::{Figures, Life};

    /// Returns a guest of 4 GiB that uses two thirds of its resident memory.
    pub(crate) fn figures(name: &str, resident: u64) -> Figures {
        let used = resident / 3 * 2;
        Figures {
            name: name.into(),
            program: format!("./{name} --fast"),
            pid: 77,
            kernel: KernelKind::Ebb,
            accel: "TCG".into(),
            give_back: "reporting".into(),
            host_pages: "huge".into(),
            life: Life::Running,
            standstill: None,
            started_s: 1.0,
            up_s: 185.2,
            memory_bytes: 4 << 30,
            cpus: 2,
            used_bytes: Some(used),
            balloon_bytes: Some(0),
            reserved_bytes: None,
            page_cache_bytes: Some(1 << 20),
            free_bytes: Some((4u64 << 30).saturating_sub(used)),
            resident_bytes: resident,
            gap_bytes: Some(resident - used),
            overhead_bytes: Some(45 << 20),
            overhead_pss_bytes: Some(29 << 20),
            oom_kills: Some(0),
            oom_last: Vec::new(),
            reported_bytes: Some(1 << 30),
            taken_bytes: Some(2 << 30),
            reports: Some(32),
            reports_per_s: Some(0.5),
            faults: Some(1234),
            faults_per_s: Some(120.0),
            reclaimed: None,
            reclaim_failed: None,
            huge_pages: vec![HugePages {
                page_bytes: 2 << 20,
                total: 12,
                free: 9,
                reserved: 2,
                surplus: 1,
            }],
            huge_descriptors_given_up_bytes: Some(12 * (32 << 10)),
        }
    }
}
