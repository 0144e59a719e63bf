//! Counts times by powers of two, and prints them as bpftrace does (`hist()`).

use crate::output::Bucket;

/// The number of characters of the longest bar.
const BAR: u64 = 52;

/// Returns the buckets from that of the smallest to that of the largest value, each from a power of
/// two to the next. Empty ones between them are included. Returns no buckets for no values.
pub(crate) fn buckets(values: &[u64]) -> Vec<Bucket> {
    let place = |value: u64| value.checked_ilog2().map_or(0, |log| log + 1);
    let places = || values.iter().copied().map(place);
    let (Some(first), Some(last)) = (places().min(), places().max()) else {
        return Vec::new();
    };
    (first..=last)
        .map(|at| Bucket {
            low: if at == 0 { 0 } else { 1 << (at - 1) },
            high: 1_u64.checked_shl(at).unwrap_or(u64::MAX),
            count: places().filter(|place| *place == at).count(),
        })
        .collect()
}

/// Returns a line for each bucket, with a bar as long as its share of the largest count.
pub(crate) fn lines(buckets: &[Bucket]) -> Vec<String> {
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let bar = |count: usize| {
        let length = (count as u64 * BAR).checked_div(most as u64).unwrap_or(0);
        "@".repeat(usize::try_from(length).unwrap_or(0))
    };
    buckets
        .iter()
        .map(|bucket| {
            let range = format!("[{}, {})", short(bucket.low), short(bucket.high));
            let (count, bar) = (bucket.count, bar(bucket.count));
            format!("{range:<16} {count:>8} |{bar:<52}|")
        })
        .collect()
}

/// Returns a power of two as bpftrace prints it, such as `8K` for 8192.
fn short(value: u64) -> String {
    for (unit, shift) in [("T", 40), ("G", 30), ("M", 20), ("K", 10)] {
        if value >> shift > 0 {
            return format!("{}{unit}", value >> shift);
        }
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_between_powers_of_two() {
        let seen = |values: &[u64]| -> Vec<(u64, u64, usize)> {
            let buckets = buckets(values);
            buckets.iter().map(|b| (b.low, b.high, b.count)).collect()
        };
        assert_eq!(seen(&[]), []);
        assert_eq!(seen(&[0]), [(0, 1, 1)]);
        assert_eq!(seen(&[8192, 16383, 5, 7]).first(), Some(&(4, 8, 2)));
        assert_eq!(seen(&[8192, 16383, 5, 7]).last(), Some(&(8192, 16384, 2)));
        assert_eq!(
            seen(&[1, 2, 8]),
            [(1, 2, 1), (2, 4, 1), (4, 8, 0), (8, 16, 1)]
        );
        assert_eq!(seen(&[u64::MAX]), [(1 << 63, u64::MAX, 1)]);
    }

    #[test]
    fn lines_are_those_of_bpftrace() {
        let bucket = |low, count| Bucket {
            low,
            high: low * 2,
            count,
        };
        let lines = lines(&[bucket(8192, 52), bucket(16384, 26), bucket(1 << 20, 0)]);
        assert_eq!(
            lines[0],
            format!("[8K, 16K)              52 |{}|", "@".repeat(52))
        );
        assert_eq!(
            lines[1],
            format!("[16K, 32K)             26 |{:<52}|", "@".repeat(26))
        );
        assert_eq!(lines[2], format!("[1M, 2M)                0 |{:<52}|", ""));
    }
}
