//! The processes that the guest's kernel killed because memory ran out.

use ebb_wire::header::{NAME_BYTES, OOM_RECORDS};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A process that the OOM killer of the guest's kernel ended. The program chose its own name, so it
/// may contain anything.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Victim {
    /// When it was killed, on the guest's clock.
    pub(crate) at: Duration,
    pub(crate) pid: u64,
    /// Its resident memory in bytes.
    pub(crate) resident: u64,
    /// Its name in bytes, padded with zeros.
    pub(crate) name: [u8; NAME_BYTES],
}

/// The number of OOM kills in a guest, and the most recent victims.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct OomKills {
    /// The number of kills so far.
    pub(crate) kills: u64,
    /// The most recent victims in order. Entries are `None` if the kernel names no victim or is
    /// writing its record.
    pub(crate) last: [Option<Victim>; OOM_RECORDS],
}

/// A process that the guest's OOM killer ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Killed {
    /// When it was killed, in seconds of the guest's clock.
    pub(crate) at_s: f64,
    /// Its process number in the guest.
    pub(crate) pid: u64,
    /// Its name, without control characters.
    pub(crate) name: String,
    /// Its resident memory in bytes.
    pub(crate) resident_bytes: u64,
}

impl Victim {
    /// Creates a victim called `name`, which is cut to `NAME_BYTES` bytes, with the process number
    /// `pid`. `at` is the time of the kill on the guest's clock, and `resident` its resident memory
    /// in bytes.
    pub(crate) fn named(name: &str, at: Duration, pid: u64, resident: u64) -> Self {
        let mut bytes = [0; NAME_BYTES];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Self {
            at,
            pid,
            resident,
            name: bytes,
        }
    }

    /// Returns the name with control characters replaced.
    fn name(&self) -> String {
        let len = self.name.iter().position(|byte| *byte == 0);
        let bytes = &self.name[..len.unwrap_or(NAME_BYTES)];
        let plain = |c: char| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        };
        String::from_utf8_lossy(bytes).chars().map(plain).collect()
    }
}

impl OomKills {
    /// Counts one more kill and records its victim last. If all entries are used, the oldest one is
    /// dropped.
    pub(crate) fn add(&mut self, victim: Victim) {
        self.kills = self.kills.saturating_add(1);
        if self.last[OOM_RECORDS - 1].is_some() {
            self.last.rotate_left(1);
            self.last[OOM_RECORDS - 1] = Some(victim);
        } else if let Some(free) = self.last.iter_mut().find(|place| place.is_none()) {
            *free = Some(victim);
        }
    }

    /// Returns the known victims in the form for users, oldest first, with times rounded to
    /// microseconds. Entries that are `None` are left out.
    pub(crate) fn told(&self) -> Vec<Killed> {
        let told = |victim: &Victim| Killed {
            at_s: (victim.at.as_secs_f64() * 1e6).round() / 1e6,
            pid: victim.pid,
            name: victim.name(),
            resident_bytes: victim.resident,
        };
        self.last.iter().flatten().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_victims_are_kept_in_their_order() {
        let mut kills = OomKills::default();
        for pid in 1..=20 {
            kills.add(Victim::named(
                "a name longer than there is room",
                Duration::ZERO,
                pid,
                pid,
            ));
            let told = kills.told();
            let pids: Vec<_> = told.iter().map(|killed| killed.pid).collect();
            let first = pid.saturating_sub(OOM_RECORDS as u64) + 1;
            assert_eq!(pids, (first..=pid).collect::<Vec<_>>());
            assert_eq!(
                (kills.kills, told[0].name.as_str()),
                (pid, "a name longer th")
            );
        }
    }

    #[test]
    fn names_are_harmless_whatever_the_program_chose() {
        let named = |name: &[u8; NAME_BYTES]| {
            let victim = Victim {
                at: Duration::from_millis(1500),
                pid: 7,
                resident: 4096,
                name: *name,
            };
            let mut kills = OomKills::default();
            kills.last[3] = Some(victim);
            let told = kills.told();
            assert_eq!((told.len(), told[0].at_s), (1, 1.5));
            told[0].name.clone()
        };
        assert_eq!(named(b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "sh");
        assert_eq!(named(b"0123456789abcdef"), "0123456789abcdef");
        assert_eq!(
            named(b"\x1b[2J\n\xff\0\0\0\0\0\0\0\0\0\0"),
            "\u{fffd}[2J\u{fffd}\u{fffd}"
        );
    }
}
