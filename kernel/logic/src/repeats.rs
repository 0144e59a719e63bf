//! Distinguishes a page fault that repeats for ever from faults that make progress.
//!
//! A machine may refuse an access that the page tables allow. The kernel then finds nothing to do,
//! and the program faults again in the same way. Another thread that maps the page between a fault
//! and the look at the page tables has the same effect. But this does not happen `MANY` times
//! without another fault and without a change of the memory's areas.

/// The properties of a fault that are equal each time when it repeats.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The address of the instruction.
    pub instruction: u64,
    /// The address that the instruction accesses.
    pub address: u64,
    /// The CPU's error code.
    pub error: u64,
}

/// Number of equal faults before the page tables are looked at.
const FEW: u32 = 64;
/// Number of equal faults, allowed by the page tables, after which a fault counts as repeating for
/// ever. A program reaches this number in less than a second.
const MANY: u32 = 100_000;

/// Counts the equal faults of one thread in a row.
#[derive(Debug, Default)]
pub struct Repeats {
    fault: Fault,
    /// The version of the memory's areas at the last fault that the page tables allowed.
    version: u64,
    times: u32,
    useless: u32,
}

impl Repeats {
    /// Counts `fault`. Returns `true` if the fault repeats for ever; then the count begins again.
    /// Returns `false` otherwise. `look` must return the version of the memory's areas if the page
    /// tables allow the access, and `None` if they do not. It is called only after some equal
    /// faults.
    pub fn note(&mut self, fault: Fault, look: impl FnOnce() -> Option<u64>) -> bool {
        if fault != self.fault {
            *self = Self {
                fault,
                ..Self::default()
            };
        }
        self.times = self.times.saturating_add(1);
        if self.times < FEW {
            return false;
        }
        match look() {
            Some(version) if version == self.version => self.useless += 1,
            Some(version) => (self.version, self.useless) = (version, 1),
            None => self.useless = 0,
        }
        let forever = self.useless >= MANY;
        if forever {
            *self = Self::default();
        }
        forever
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, Fault, MANY, Repeats};

    const FAULT: Fault = Fault {
        instruction: 0x40_1000,
        address: 0x50_0000,
        error: 5,
    };

    /// Returns the number of the fault after which `Repeats` reports that faults repeat for ever,
    /// if any of the first `most`. `look` describes each fault.
    fn faults(look: impl Fn(u32) -> (Fault, Option<u64>), most: u32) -> Option<u32> {
        let mut repeats = Repeats::default();
        (1..=most).find(|&n| {
            let (fault, allowed) = look(n);
            repeats.note(fault, || allowed)
        })
    }

    #[test]
    fn a_fault_that_is_allowed_ends() {
        let end = faults(|_| (FAULT, Some(7)), 2 * MANY);
        assert_eq!(end, Some(FEW + MANY - 1));
    }

    #[test]
    fn the_tables_are_not_looked_at_at_first() {
        let mut repeats = Repeats::default();
        for _ in 1..FEW {
            assert!(!repeats.note(FAULT, || unreachable!("too early")));
        }
    }

    #[test]
    fn whatever_changes_begins_anew() {
        let other = Fault {
            address: 0x60_0000,
            ..FAULT
        };
        let often = |n: u32| n.is_multiple_of(MANY - 1);
        let most = 4 * MANY;
        assert_eq!(
            faults(|n| (if often(n) { other } else { FAULT }, Some(7)), most),
            None
        );
        assert_eq!(faults(|n| (FAULT, (!often(n)).then_some(7)), most), None);
        assert_eq!(
            faults(|n| (FAULT, Some(u64::from(n / (MANY - 1)))), most),
            None
        );
    }
}
