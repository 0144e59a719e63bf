//! Histograms of values that programs report by ranges, drawn as text.

use super::give_back_mode::GiveBackMode;
use super::schema::{Bucket, Outcome, Run, What};
use super::wording::metric;

/// The number of characters of the longest bar.
const BAR: u32 = 40;
/// The maximum number of ranges of a histogram: the powers of two of a 64-bit number. A program may
/// report more, which are left out.
const RANGES_MAX: usize = 65;

/// A histogram as text: its title, and a line for each range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Histogram {
    pub(crate) title: String,
    pub(crate) lines: Vec<String>,
}

/// The values of one metric in one column.
struct Counted {
    title: String,
    buckets: Vec<Bucket>,
}

/// Returns the histograms of `runs`, in the order in which their metrics first appear: one for each
/// metric, unit, guest and mode, with the values of all runs that ended well. Guests that give
/// nothing back are left out if others have the metric.
pub(crate) fn of(runs: &[&Run]) -> Vec<Histogram> {
    let mut all: Vec<Counted> = Vec::new();
    let off_only = runs.iter().all(|run| run.give_back == GiveBackMode::OFF);
    for run in runs.iter().filter(|run| run.outcome == Outcome::Ok) {
        if run.give_back == GiveBackMode::OFF && !off_only {
            continue;
        }
        for event in &run.events {
            let What::Distribution {
                metric: name,
                unit,
                histogram,
                ..
            } = &event.what
            else {
                continue;
            };
            if histogram.is_empty() {
                continue;
            }
            let unit = if run.icount && unit == "ns" {
                "instructions"
            } else {
                unit
            };
            let label = run.give_back.label(run.guest, true);
            let title = format!("{}, {unit}: {label}", metric(name));
            match all.iter_mut().find(|known| known.title == title) {
                Some(known) => add(&mut known.buckets, histogram),
                None => {
                    let mut buckets = Vec::new();
                    add(&mut buckets, histogram);
                    all.push(Counted { title, buckets });
                }
            }
        }
    }
    // Those of one metric are next to each other.
    let head = |title: &str| title.split(": ").next().unwrap_or("").to_owned();
    let order: Vec<String> = all.iter().map(|known| head(&known.title)).collect();
    all.sort_by_key(|known| order.iter().position(|other| *other == head(&known.title)));
    all.into_iter()
        .map(|counted| Histogram {
            lines: lines(&counted.buckets),
            title: counted.title,
        })
        .collect()
}

/// Adds the counts of `more` to `buckets`, and keeps the order of the ranges.
fn add(buckets: &mut Vec<Bucket>, more: &[Bucket]) {
    for bucket in more.iter().take(RANGES_MAX) {
        let room = buckets.len() < RANGES_MAX;
        match buckets.iter_mut().find(|known| known.low == bucket.low) {
            Some(known) => known.count = known.count.saturating_add(bucket.count),
            None if room => buckets.push(*bucket),
            None => {}
        }
    }
    buckets.sort_by(|one, other| one.low.total_cmp(&other.low));
}

/// Returns a line for each range, with a bar.
fn lines(buckets: &[Bucket]) -> Vec<String> {
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    buckets
        .iter()
        .map(|bucket| {
            let length = (u128::from(bucket.count) * u128::from(BAR))
                .checked_div(u128::from(most))
                .unwrap_or(0);
            let bar = "@".repeat(usize::try_from(length).unwrap_or(0));
            let range = format!("[{}, {})", short(bucket.low), short(bucket.high));
            format!("{range:<14} {:>8} |{bar:<40}|", bucket.count)
        })
        .collect()
}

/// Returns a number of a range's end as bpftrace prints it, such as `8K` for 8192.
fn short(value: f64) -> String {
    for (unit, size) in [
        ("T", 1_099_511_627_776.0),
        ("G", 1_073_741_824.0),
        ("M", 1_048_576.0),
        ("K", 1024.0),
    ] {
        if value >= size {
            return format!("{:.0}{unit}", value / size);
        }
    }
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::{Better, Event, Guest};
    use std::collections::BTreeMap;

    #[test]
    fn a_program_cannot_fill_the_report() {
        let many: Vec<Bucket> = (0..1000_u32)
            .map(|low| Bucket {
                low: f64::from(low),
                high: f64::from(low + 1),
                count: u64::MAX,
            })
            .collect();
        let mut buckets = Vec::new();
        for _ in 0..2 {
            add(&mut buckets, &many);
        }
        assert_eq!(buckets.len(), RANGES_MAX);
        assert_eq!(lines(&buckets).len(), RANGES_MAX);
    }

    #[test]
    fn runs_of_one_column_are_counted_together() {
        let run = |guest, give_back, counts: &[(f64, u64)]| {
            let buckets = counts.iter().map(|&(low, count)| Bucket {
                low,
                high: low * 2.0,
                count,
            });
            let what = What::Distribution {
                metric: "free_each_ns".into(),
                unit: "ns".into(),
                better: Better::Lower,
                percentiles: Vec::new(),
                count: 0,
                histogram: buckets.collect(),
                labels: BTreeMap::new(),
            };
            Run {
                give_back,
                events: vec![Event { host_s: None, what }],
                ..Run::blank(guest)
            }
        };
        let runs = [
            run(Guest::Ebb, GiveBackMode::REPORTING, &[(8192.0, 3)]),
            run(Guest::Linux, GiveBackMode::REPORTING, &[(16384.0, 7)]),
            run(Guest::Ebb, GiveBackMode::OFF, &[(8192.0, 9)]),
            run(
                Guest::Ebb,
                GiveBackMode::REPORTING,
                &[(4096.0, 4), (8192.0, 5)],
            ),
        ];
        let runs: Vec<&Run> = runs.iter().collect();
        let found = of(&runs);
        let titles: Vec<&str> = found.iter().map(|known| known.title.as_str()).collect();
        assert_eq!(
            titles,
            ["each page back, ns: Ebb", "each page back, ns: Linux"]
        );
        let half = format!("{:<40}", "@".repeat(20));
        assert_eq!(
            found[0].lines[0],
            format!("[4K, 8K)              4 |{half}|")
        );
        let whole = "@".repeat(40);
        assert_eq!(
            found[0].lines[1],
            format!("[8K, 16K)             8 |{whole}|")
        );
        assert_eq!(
            found[1].lines,
            [format!("[16K, 32K)            7 |{whole}|")]
        );
    }
}
