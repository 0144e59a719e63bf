//! Draws the memory curve of a run as text: memory used by the guest and memory held of the host,
//! over time.

use super::trace::Point;
use crate::text::Rounded;
use crate::text::Style;
use std::fmt;
use std::time::Duration;

/// Columns of the chart, without its labels.
const COLUMNS: usize = 60;
/// Rows of the chart, without its axis.
const ROWS: u64 = 8;

/// A text chart of the memory curve through `points`, printed by its `Display`. Without points it
/// is an empty chart of 11 lines.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    /// The points of the curve, in order of time.
    pub(crate) points: &'a [Point],
    /// The bytes that the guest's kernel reserved when it booted, which are drawn with those that
    /// it uses. `None` if they are not known.
    pub(crate) reserved: Option<u64>,
    /// Whether Unicode blocks may be used.
    pub(crate) style: Style,
}

/// The largest value of each figure in the time that a column stands for, in bytes.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
struct Column {
    /// Used and reserved memory.
    used: u64,
    resident: u64,
}

/// Computes the columns of a chart from time 0 to `end`, with `reserved` bytes beside those that
/// the guest uses. A column without a point repeats the column before it.
fn columns(points: &[Point], reserved: u64, end: Duration) -> [Column; COLUMNS] {
    let mut columns = [None::<Column>; COLUMNS];
    let span = end.as_nanos().max(1);
    for point in points {
        let at = point.at.as_nanos() * COLUMNS as u128 / span;
        let at = usize::try_from(at).unwrap_or(COLUMNS).min(COLUMNS - 1);
        let column = columns[at].get_or_insert_default();
        column.used = column.used.max(point.used.saturating_add(reserved));
        column.resident = column.resident.max(point.resident);
    }
    let mut seen = Column::default();
    columns.map(|column| {
        seen = column.unwrap_or(seen);
        seen
    })
}

/// Returns the number of rows that a bar of `bytes` reaches, rounded to the nearest. [`ROWS`] rows
/// stand for `full` bytes.
fn rows(bytes: u64, full: u64) -> u64 {
    let full = u128::from(full.max(1));
    let rows = (u128::from(bytes) * u128::from(ROWS) + full / 2) / full;
    u64::try_from(rows).unwrap_or(ROWS).min(ROWS)
}

impl fmt::Display for Chart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.points.last().map_or(Duration::ZERO, |point| point.at);
        let columns = columns(self.points, self.reserved.unwrap_or(0), end);
        let full = columns
            .iter()
            .map(|column| column.used.max(column.resident))
            .max()
            .unwrap_or(0);
        let (used, resident) = if self.style.unicode {
            ('█', '░')
        } else {
            ('#', '.')
        };
        for row in (1..=ROWS).rev() {
            let label = if row == ROWS {
                Rounded(full).to_string()
            } else {
                String::new()
            };
            let cells: String = columns
                .iter()
                .map(|column| {
                    if rows(column.used, full) >= row {
                        used
                    } else if rows(column.resident, full) >= row {
                        resident
                    } else {
                        ' '
                    }
                })
                .collect();
            writeln!(f, "  {label:>11} |{}", cells.trim_end())?;
        }
        writeln!(f, "  {:>11} +{}", "0", "-".repeat(COLUMNS))?;
        let seconds = format!("{:.1} s", end.as_secs_f64());
        writeln!(f, "  {:>11}  0 s{seconds:>width$}", "", width = COLUMNS - 3)?;
        let [taken, free] = match self.reserved {
            Some(_) => [
                "used or reserved by the guest",
                "free, still held of the host",
            ],
            None => [
                "used by the guest",
                "free in the guest, still held of the host",
            ],
        };
        write!(f, "  {:>11}  {used} {taken}   {resident} {free}", "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { unicode: false };

    fn point(seconds: u64, used: u64, resident: u64) -> Point {
        Point {
            at: Duration::from_secs(seconds),
            used,
            resident,
        }
    }

    #[test]
    fn shows_what_is_used_and_what_is_only_held() {
        // The memory is used for half of the time, held for another quarter, and then returned.
        let points: Vec<_> = (0..=60)
            .map(|second| {
                let used = if second < 30 { 800 } else { 0 };
                let resident = if second < 45 { 800 } else { 100 };
                point(second, used, resident)
            })
            .collect();
        let chart = Chart {
            points: &points,
            reserved: None,
            style: PLAIN,
        }
        .to_string();
        let lines: Vec<_> = chart.lines().collect();
        assert_eq!(lines.len(), 11);
        let top = lines[0].split_once('|').map(|(_, cells)| cells);
        assert_eq!(top, Some(&*("#".repeat(30) + &".".repeat(15))));
        let bottom = lines[7].split_once('|').map(|(_, cells)| cells);
        assert_eq!(bottom, Some(&*("#".repeat(30) + &".".repeat(30))));
        assert!(lines[9].ends_with("60.0 s"), "{chart}");
    }

    #[test]
    fn what_the_kernel_reserved_is_not_drawn_as_free() {
        let points = [point(0, 300, 800), point(60, 300, 800)];
        let bottom_up = |reserved| {
            let chart = Chart {
                points: &points,
                reserved,
                style: PLAIN,
            };
            let chart = chart.to_string();
            let cells = chart.lines().take(8).map(|line| line.split_once('|'));
            let first = cells.map(|cells| cells.and_then(|(_, cells)| cells.chars().next()));
            (first.flatten().collect::<String>(), chart)
        };
        assert_eq!(bottom_up(None).0, ".....###");
        let (cells, chart) = bottom_up(Some(200));
        assert_eq!(cells, "...#####");
        assert!(
            chart.contains("# used or reserved by the guest   "),
            "{chart}"
        );
    }

    #[test]
    fn draws_nothing_from_nothing_without_falling_over() {
        for points in [vec![], vec![point(0, 0, 0)], vec![point(5, u64::MAX, 1)]] {
            let chart = Chart {
                points: &points,
                reserved: Some(1),
                style: PLAIN,
            };
            assert_eq!(chart.to_string().lines().count(), 11);
        }
    }

    #[test]
    fn gaps_keep_what_was_seen_last() {
        let columns = columns(
            &[point(0, 7, 8), point(60, 1, 2)],
            0,
            Duration::from_secs(60),
        );
        let first = Column {
            used: 7,
            resident: 8,
        };
        assert_eq!(columns[0], first);
        assert_eq!(columns[COLUMNS - 2], first);
        assert_eq!(columns[COLUMNS - 1].used, 1);
    }
}
