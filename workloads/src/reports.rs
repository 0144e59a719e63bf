//! Tells how often the guest reported free memory to its host while an experiment measured.
//!
//! Ebb counts its requests in `/proc/vmstat`. Stock Linux 6.1 has no such counter. But its balloon
//! device interrupts once for each request that the host has taken, and once for each of the host's
//! questions about the guest's memory. So for Linux the interrupts are printed, with the time in
//! which they came, from which `ebb compare` computes bounds.

use crate::Failure;
use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use crate::vmstat::Vmstat;

/// The counter of requests in `/proc/vmstat`.
const REQUESTS: &str = "page_reporting_requests";
/// The folder of the guest's virtio devices.
const DEVICES: &str = "/sys/bus/virtio/devices";
/// The contents of a balloon's file `device`: its number in the virtio specification.
const BALLOON: &str = "0x0005";

/// A counter of the kernel that grows with each report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Counter {
    /// The requests that the host took, in `/proc/vmstat`.
    Requests,
    /// The interrupts of the balloon device of this name, in `/proc/interrupts`.
    Interrupts(String),
}

impl Counter {
    /// Returns the best counter of this kernel, or `None` if it has none: it has no balloon.
    pub(crate) fn find() -> Option<Self> {
        if Vmstat::read().is_ok_and(|vmstat| vmstat.get(REQUESTS).is_ok()) {
            return Some(Self::Requests);
        }
        let counter = Self::Interrupts(balloon()?);
        counter.read().map(|_| counter)
    }

    /// Returns the present count, or `None` if it cannot be read.
    pub(crate) fn read(&self) -> Option<u64> {
        match self {
            Self::Requests => Vmstat::read().ok()?.get(REQUESTS).ok(),
            Self::Interrupts(device) => {
                let text = std::fs::read_to_string("/proc/interrupts").ok()?;
                interrupts(&text, device)
            }
        }
    }
}

/// A part of an experiment that has begun, and for which reports are counted.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    counter: Option<&'a Counter>,
    count: u64,
    begin_ns: u64,
}

impl<'a> Part<'a> {
    /// Begins a part. `counter` is `None` if the kernel has none.
    pub(crate) fn begin(counter: Option<&'a Counter>) -> Self {
        // The time has all of the counted interrupts in it.
        let begin_ns = monotonic_ns();
        Self {
            counter,
            count: count(counter),
            begin_ns,
        }
    }

    /// Ends the part, and returns its counts.
    pub(crate) fn end(self) -> Meanwhile<'a> {
        let counts = [self.count, count(self.counter)];
        Meanwhile {
            counter: self.counter,
            ns: monotonic_ns() - self.begin_ns,
            counts,
        }
    }
}

/// The counts of a counter at the begin and the end of a part of an experiment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meanwhile<'a> {
    /// The counter; `None` if the kernel has none.
    pub(crate) counter: Option<&'a Counter>,
    /// Its count at the begin and at the end.
    pub(crate) counts: [u64; 2],
    /// The length of the part in nanoseconds.
    pub(crate) ns: u64,
}

impl Meanwhile<'_> {
    /// Prints by how much the count has grown, as the result `reports`. For
    /// [`Counter::Interrupts`] the results are `balloon_interrupts` and `watched_s`. Prints nothing
    /// without a counter. `labels` are those of the figures that were measured in this part.
    pub(crate) fn print(&self, labels: &Labels, out: &mut Output) -> Result<(), Failure> {
        let [before, after] = self.counts;
        let grown = ratio(after.saturating_sub(before), 1);
        let mut result = |name, value, unit| {
            out.result(&Metric {
                name,
                value,
                unit,
                better: Better::Lower,
                labels: labels.clone(),
            })
        };
        match self.counter {
            None => Ok(()),
            Some(Counter::Requests) => result("reports", grown, "requests"),
            Some(Counter::Interrupts(_)) => {
                result("balloon_interrupts", grown, "interrupts")?;
                result("watched_s", ratio(self.ns, 1_000_000_000), "s")
            }
        }
    }
}

/// Returns the present count of `counter`. Returns 0 if it is `None` or cannot be read.
pub(crate) fn count(counter: Option<&Counter>) -> u64 {
    counter.and_then(Counter::read).unwrap_or(0)
}

/// Returns the name of the guest's balloon device, such as `virtio2`, or `None` if it has none.
fn balloon() -> Option<String> {
    let devices = std::fs::read_dir(DEVICES).ok()?;
    devices.flatten().find_map(|device| {
        let number = std::fs::read_to_string(device.path().join("device")).ok()?;
        let name = device.file_name().into_string().ok()?;
        (number.trim() == BALLOON).then_some(name)
    })
}

/// Returns the sum of the interrupts of `device` on all CPUs, from the text of `/proc/interrupts`.
/// A device may have several interrupts, such as `virtio2-config` and `virtio2-reporting_vq`, and
/// share one with others. Returns `None` if no line names it.
fn interrupts(text: &str, device: &str) -> Option<u64> {
    let counts = text.lines().filter_map(|line| {
        let (_, line) = line.split_once(':')?;
        let is_of_device = line.split_whitespace().any(|word| {
            let rest = word.trim_end_matches(',').strip_prefix(device);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        let numbers = line
            .split_whitespace()
            .map_while(|word| word.parse::<u64>().ok());
        is_of_device.then(|| numbers.sum::<u64>())
    });
    counts.fold(None, |sum, count| Some(sum.unwrap_or(0) + count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_a_device_are_added() {
        let text = "           CPU0       CPU1       \n\
                    \x20 0:        120          0   IO-APIC   2-edge      timer\n\
                    \x2016:          7          2   IO-APIC  16-edge      virtio1\n\
                    \x2017:          1          0   IO-APIC  17-edge      other, virtio10\n\
                    \x2018:         40          1   PCI-MSI 32768-edge    virtio2-config\n\
                    \x2019:          3          0   PCI-MSI 32769-edge    virtio2-reporting_vq\n\
                    LOC:       9999       9999   Local timer interrupts\n";
        assert_eq!(interrupts(text, "virtio1"), Some(9));
        assert_eq!(interrupts(text, "virtio10"), Some(1));
        assert_eq!(interrupts(text, "virtio2"), Some(44));
        assert_eq!(interrupts(text, "virtio3"), None);
    }
}
