//! The columns of the list of guests: their content, and the order of guests by a column.

use super::amount::{Bytes, Rate, Seconds, UNKNOWN};
use crate::registry::Figures;
use clap::ValueEnum;
use std::cmp::Ordering;

/// A column of the list, in the order of the list.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Column {
    Name,
    Kernel,
    Cpus,
    Up,
    Memory,
    Used,
    Cache,
    Free,
    Balloon,
    Resident,
    Gap,
    Overhead,
    Returned,
    #[value(name = "reports")]
    ReportRate,
    #[value(name = "faults")]
    FaultRate,
    Program,
}

impl Column {
    /// All columns, in the order in which the list shows them.
    pub(super) const ALL: [Self; 16] = [
        Self::Name,
        Self::Kernel,
        Self::Cpus,
        Self::Up,
        Self::Memory,
        Self::Used,
        Self::Cache,
        Self::Free,
        Self::Balloon,
        Self::Resident,
        Self::Gap,
        Self::Overhead,
        Self::Returned,
        Self::ReportRate,
        Self::FaultRate,
        Self::Program,
    ];

    /// The columns by importance. If there is not enough space, the first ones are shown.
    const BY_WORTH: [Self; 16] = [
        Self::Name,
        Self::Used,
        Self::Resident,
        Self::Gap,
        Self::FaultRate,
        Self::Memory,
        Self::Free,
        Self::Cache,
        Self::Overhead,
        Self::Balloon,
        Self::ReportRate,
        Self::Kernel,
        Self::Returned,
        Self::Up,
        Self::Cpus,
        Self::Program,
    ];

    /// Returns the heading of the column, in capital letters.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Kernel => "KERNEL",
            Self::Cpus => "CPUS",
            Self::Up => "UP",
            Self::Memory => "MEMORY",
            Self::Used => "USED",
            Self::Cache => "CACHE",
            Self::Free => "FREE",
            Self::Balloon => "BALLOON",
            Self::Resident => "RESIDENT",
            Self::Gap => "GAP",
            Self::Overhead => "OVERHEAD",
            Self::Returned => "RETURNED",
            Self::ReportRate => "REPORTS/s",
            Self::FaultRate => "FAULTS/s",
            Self::Program => "PROGRAM",
        }
    }

    /// Returns a short text that explains the column, for the help screen.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Name => "--name of the run, or its program and process",
            Self::Kernel => "Ebb, Linux with --kernel linux, or other with --qmp",
            Self::Cpus => "virtual CPUs",
            Self::Up => "time since the guest started",
            Self::Memory => "memory that the guest was given",
            Self::Used => "what the guest has in use",
            Self::Cache => "the part of it that files take",
            Self::Free => "what the guest could use at once",
            Self::Balloon => "what its balloon took, neither used nor free",
            Self::Resident => "what the host holds for the guest",
            Self::Gap => "free in the guest, still held of the host",
            Self::Overhead => "memory of QEMU itself",
            Self::Returned => "sum of all that was reported, or taken by the host",
            Self::ReportRate => "reports to the host a second",
            Self::FaultRate => "page faults served a second",
            Self::Program => "program and arguments",
        }
    }

    /// Returns the least width of the column in characters, without the gap before it.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Name => 16,
            Self::Kernel => 6,
            Self::Cpus => 4,
            Self::Overhead | Self::Returned | Self::Resident | Self::FaultRate => 8,
            Self::ReportRate => 9,
            Self::Program => 10,
            _ => 7,
        }
    }

    /// Returns whether the column contains text, which is aligned on the left. Returns `false` for
    /// numbers, which are aligned on the right.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Name | Self::Kernel | Self::Program)
    }

    /// Returns the text of the column for the guest with these figures, not yet cut or padded to a
    /// width. Returns [`UNKNOWN`] for an unknown figure.
    pub(super) fn cell(self, figures: &Figures) -> String {
        let bytes = |bytes: Option<u64>| {
            bytes.map_or_else(|| UNKNOWN.to_owned(), |bytes| Bytes(bytes).to_string())
        };
        let rate = |rate: Option<f64>| {
            rate.map_or_else(|| UNKNOWN.to_owned(), |rate| Rate(rate).to_string())
        };
        match self {
            Self::Name => figures.name.clone(),
            Self::Kernel => figures.kernel.name().to_owned(),
            Self::Cpus => figures.cpus.to_string(),
            Self::Up => Seconds(whole_seconds(figures.up_s)).to_string(),
            Self::Memory => bytes(Some(figures.memory_bytes)),
            Self::Used => bytes(figures.used_bytes),
            Self::Cache => bytes(figures.page_cache_bytes),
            Self::Free => bytes(figures.free_bytes),
            Self::Balloon => bytes(figures.balloon_bytes),
            Self::Resident => bytes(Some(figures.resident_bytes)),
            Self::Gap => bytes(figures.gap_bytes),
            Self::Overhead => bytes(figures.overhead_bytes),
            Self::Returned => bytes(returned(figures)),
            Self::ReportRate => rate(figures.reports_per_s),
            Self::FaultRate => rate(figures.faults_per_s),
            Self::Program => figures.program.clone(),
        }
    }

    /// Compares two guests by the column, for sorting. Text is in ascending order. Numbers are in
    /// descending order, so that the largest come first and unknown ones last. Guests with equal
    /// values are ordered by name and process number.
    pub(super) fn order(self, a: &Figures, b: &Figures) -> Ordering {
        let rate = |a: Option<f64>, b: Option<f64>| {
            let of = |rate: Option<f64>| rate.unwrap_or(-1.0);
            of(b).total_cmp(&of(a))
        };
        let first = match self {
            Self::Name => a.name.cmp(&b.name),
            Self::Program => a.program.cmp(&b.program),
            Self::Kernel => a.kernel.name().cmp(b.kernel.name()),
            Self::Cpus => b.cpus.cmp(&a.cpus),
            Self::Up => b.up_s.total_cmp(&a.up_s),
            Self::Memory => b.memory_bytes.cmp(&a.memory_bytes),
            Self::Used => b.used_bytes.cmp(&a.used_bytes),
            Self::Cache => b.page_cache_bytes.cmp(&a.page_cache_bytes),
            Self::Free => b.free_bytes.cmp(&a.free_bytes),
            Self::Balloon => b.balloon_bytes.cmp(&a.balloon_bytes),
            Self::Resident => b.resident_bytes.cmp(&a.resident_bytes),
            Self::Gap => b.gap_bytes.cmp(&a.gap_bytes),
            Self::Overhead => b.overhead_bytes.cmp(&a.overhead_bytes),
            Self::Returned => returned(b).cmp(&returned(a)),
            Self::ReportRate => rate(a.reports_per_s, b.reports_per_s),
            Self::FaultRate => rate(a.faults_per_s, b.faults_per_s),
        };
        // Guests with equal values must keep a stable order.
        first
            .then_with(|| a.name.cmp(&b.name))
            .then(a.pid.cmp(&b.pid))
    }

    /// Returns the most important columns that fit into `width` characters, in the order of the
    /// list, each with its width in characters. Between two columns there are [`GAP`] characters.
    /// The columns `Name` and `Program` take the remaining width. Returns an empty list if no
    /// column fits.
    pub(super) fn fitting(width: usize) -> Vec<(Self, usize)> {
        let mut left = width;
        let mut chosen = Vec::with_capacity(Self::ALL.len());
        for column in Self::BY_WORTH {
            let gap = if chosen.is_empty() { 0 } else { GAP };
            let Some(rest) = left.checked_sub(column.width() + gap) else {
                break;
            };
            left = rest;
            chosen.push((column, column.width()));
        }
        chosen.sort();
        // Text columns get the remaining width, names first up to a limit.
        let names = if chosen.iter().any(|(column, _)| *column == Self::Program) {
            left.min(12)
        } else {
            left
        };
        for (column, width) in &mut chosen {
            match column {
                Self::Name => *width += names,
                Self::Program => *width += left - names,
                _ => {}
            }
        }
        chosen
    }
}

/// The number of blanks between two columns.
pub(super) const GAP: usize = 2;

/// Returns `seconds` without its fraction. Returns 0 for a negative number or NaN, and `u64::MAX`
/// for one beyond that.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float is cut at the bounds of the integer"
)]
pub(super) fn whole_seconds(seconds: f64) -> u64 {
    seconds as u64
}

/// Returns the guest's name followed by `(note)`, with the whole note. The name is cut with an
/// ellipsis so that the result has at most `width` characters, or one character of it remains.
pub(super) fn noted(name: &str, note: &str, width: usize) -> String {
    let room = width.saturating_sub(note.len() + 3);
    format!("{} ({note})", padded(name, room, true).trim_end())
}

/// Returns `text` in exactly `width` characters, padded with blanks or cut with an ellipsis at its
/// end. `width` must be at least 1. If `left`, the text is aligned on the left, else on the right.
pub(super) fn padded(text: &str, width: usize, left: bool) -> String {
    let mut cut: String = text.chars().take(width).collect();
    if text.chars().nth(width).is_some() {
        cut.pop();
        cut.push('…');
    }
    if left {
        format!("{cut:<width$}")
    } else {
        format!("{cut:>width$}")
    }
}

/// Returns the sum of all bytes that have gone back to the host, by reports of the guest or taken
/// by the host. Returns `None` if both are unknown.
pub(super) fn returned(figures: &Figures) -> Option<u64> {
    match (figures.reported_bytes, figures.taken_bytes) {
        (None, None) => None,
        (reported, taken) => {
            let (reported, taken) = (reported.unwrap_or(0), taken.unwrap_or(0));
            Some(reported.saturating_add(taken))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::figures;

    #[test]
    fn columns_fill_the_width_and_never_more() {
        for width in 0..300 {
            let columns = Column::fitting(width);
            let sum: usize = columns.iter().map(|(_, width)| width).sum();
            let total = sum + GAP * columns.len().saturating_sub(1);
            assert!(total <= width, "{width}");
            assert!(columns.is_sorted());
            assert_eq!(columns.is_empty(), width < Column::Name.width());
        }
        assert_eq!(Column::fitting(200).len(), Column::ALL.len());
        let at_80: Vec<_> = Column::fitting(80)
            .iter()
            .map(|(column, _)| *column)
            .collect();
        for column in [
            Column::Used,
            Column::Resident,
            Column::Gap,
            Column::FaultRate,
        ] {
            assert!(at_80.contains(&column), "{column:?}");
        }
    }

    #[test]
    fn cells_fit_their_columns() {
        let figures = figures("a", 1023 << 30);
        for column in Column::ALL {
            let text = column.cell(&figures);
            assert!(column.is_text() || text.len() <= column.width(), "{text}");
            assert!(column.heading().len() <= column.width());
        }
    }

    #[test]
    fn most_comes_first_and_ties_stay() {
        let (a, b) = (figures("a", 1 << 20), figures("b", 2 << 20));
        assert_eq!(Column::Resident.order(&a, &b), Ordering::Greater);
        assert_eq!(Column::Name.order(&a, &b), Ordering::Less);
        assert_eq!(Column::Cpus.order(&a, &b), Ordering::Less);
    }

    #[test]
    fn text_is_cut_where_it_must_be() {
        assert_eq!(padded("abc", 5, true), "abc  ");
        assert_eq!(padded("abc", 5, false), "  abc");
        assert_eq!(padded("abcdef", 4, true), "abc…");
    }
}
