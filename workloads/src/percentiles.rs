//! Computes the distribution of many values.

use crate::histogram;
use crate::output::{Better, Distribution, Labels};

/// The percentiles of the proactive compaction patches, and the maximum.
const PERCENTILES: [u32; 12] = [5, 10, 25, 30, 40, 50, 60, 75, 80, 90, 95, 100];

/// Returns the distribution of `latencies`, times in nanoseconds, under the name `name`. Panics if
/// `latencies` is empty.
pub(crate) fn spread(name: &'static str, mut latencies: Vec<u64>, labels: Labels) -> Distribution {
    latencies.sort_unstable();
    Distribution {
        name,
        unit: "ns",
        better: Better::Lower,
        percentiles: PERCENTILES
            .map(|percent| (percent, percentile(&latencies, percent)))
            .to_vec(),
        count: latencies.len(),
        histogram: Vec::new(),
        labels,
    }
}

/// Returns the distribution of `latencies` as [`spread`] does, with a histogram. Panics if
/// `latencies` is empty.
pub(crate) fn with_histogram(
    name: &'static str,
    latencies: Vec<u64>,
    labels: Labels,
) -> Distribution {
    let histogram = histogram::buckets(&latencies);
    Distribution {
        histogram,
        ..spread(name, latencies, labels)
    }
}

/// Returns the smallest value of `sorted` that `percent` percent of the values do not exceed.
fn percentile(sorted: &[u64], percent: u32) -> u64 {
    let rank = (sorted.len() * percent as usize).div_ceil(100);
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let sorted: Vec<u64> = (1..=10).collect();
        for (percent, value) in [(5, 1), (10, 1), (11, 2), (50, 5), (95, 10), (100, 10)] {
            assert_eq!(percentile(&sorted, percent), value, "{percent}");
        }
        assert_eq!(percentile(&[7], 5), 7);
    }
}
