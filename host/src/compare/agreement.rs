//! Checks whether two comparisons agree, by their ratios.

use super::schema::{Report, Row};
use super::wording::{row_name, speaks_alone, times};
use std::fmt::Write as _;

/// The comparison that `--against` names, with which this one is compared.
#[derive(Debug)]
pub(crate) struct Other<R> {
    /// Its report.
    pub(crate) report: R,
    /// The name of the file that it was read from.
    pub(crate) name: String,
    /// Whether no experiment was run, so that only the agreement is printed and not the table
    /// again.
    pub(crate) alone: bool,
}

/// The maximum relative difference of ratios that depend on the machine.
const MEASURED: f64 = 0.10;
/// The maximum relative difference of ratios of counted instructions.
const COUNTED: f64 = 0.01;

/// The ratio of Ebb's figure to Linux's, of one metric in two comparisons.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Pair {
    experiment: String,
    name: String,
    here: Option<f64>,
    there: Option<f64>,
    bound: f64,
}

impl Pair {
    /// Creates the pair of a figure's ratios. `here` is from this comparison, `there` from the
    /// other. Each is `None` if that comparison lacks it. `counted` says that the figure is a
    /// number of instructions, for which the limit is stricter.
    pub(crate) fn new(
        experiment: String,
        name: String,
        [here, there]: [Option<f64>; 2],
        counted: bool,
    ) -> Self {
        Self {
            experiment,
            name,
            here,
            there,
            bound: if counted { COUNTED } else { MEASURED },
        }
    }

    /// Returns the relative difference of the larger ratio to the smaller one, negative if this one
    /// is smaller. Returns `None` if a ratio is missing.
    fn difference(&self) -> Option<f64> {
        let (here, there) = (self.here?, self.there?);
        let apart = here.max(there) / here.min(there) - 1.0;
        Some(if here < there { -apart } else { apart })
    }

    /// Returns whether the ratios agree, or `None` if one is missing.
    fn agrees(&self) -> Option<bool> {
        // The tolerance accepts a difference that is printed like the limit.
        Some(self.difference()?.abs() <= self.bound + 1e-9)
    }
}

/// The pairs of ratios of two comparisons, and whether they agree.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Agreement {
    pairs: Vec<Pair>,
    with: String,
}

impl Agreement {
    /// Compares every ratio that a report shows on its own, for experiments that are in both
    /// reports. A ratio that only one of them has is included, too. `with` is the name of the file
    /// of `there`.
    pub(crate) fn of(here: &Report, there: &Report, with: String) -> Self {
        let (ours, theirs) = (here.experiments(), there.experiments());
        let both = |row: &Row| {
            let name = row.experiment.as_str();
            ours.contains(&name) && theirs.contains(&name)
        };
        let mut pairs: Vec<Pair> = rows(here)
            .filter(|row| both(row))
            .map(|row| {
                let other = there.table.iter().find(|other| same(row, other));
                pair(here, row, row.ratio, other.and_then(|other| other.ratio))
            })
            .collect();
        pairs.extend(
            rows(there)
                .filter(|row| both(row) && !here.table.iter().any(|other| same(row, other)))
                .map(|row| pair(there, row, None, row.ratio)),
        );
        Self::new(pairs, with)
    }

    /// Creates the comparison of `pairs`. Leaves out pairs that have no ratio at all. `with` is the
    /// name of the file with the other ratios.
    pub(crate) fn new(mut pairs: Vec<Pair>, with: String) -> Self {
        pairs.retain(|pair| pair.here.is_some() || pair.there.is_some());
        Self { pairs, with }
    }

    /// Returns whether all ratios that are in both comparisons agree. Returns `false` if no ratio
    /// is in both.
    pub(crate) fn holds(&self) -> bool {
        let verdicts: Vec<bool> = self.pairs.iter().filter_map(Pair::agrees).collect();
        !verdicts.is_empty() && verdicts.iter().all(|agrees| *agrees)
    }

    /// Returns a sentence with the number of ratios that agree.
    fn verdict(&self) -> String {
        let verdicts: Vec<bool> = self.pairs.iter().filter_map(Pair::agrees).collect();
        let agree = verdicts.iter().filter(|agrees| **agrees).count();
        let alone = self.pairs.len() - verdicts.len();
        let mut text = format!(
            "{agree} of {} ratios agree within {:.0} %, counted ones within {:.0} %",
            verdicts.len(),
            MEASURED * 100.0,
            COUNTED * 100.0
        );
        if alone > 0 {
            let _ = write!(text, "; {alone} stand in one comparison only");
        }
        text.push('.');
        text
    }

    /// Returns the comparison as text for a terminal: a line per ratio, then the number that agree.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("Ratios here, in {}, and how far apart\n", self.with);
        let mut experiment = "";
        for pair in &self.pairs {
            if pair.experiment != experiment {
                experiment = &pair.experiment;
                let _ = writeln!(text, "{experiment}");
            }
            let [here, there, apart, verdict] = cells(pair);
            let _ = writeln!(
                text,
                "  {:<34}{here:>9}{there:>9}{apart:>9}  {verdict}",
                pair.name
            );
        }
        let _ = writeln!(text, "{}", self.verdict());
        text
    }

    /// Returns the comparison as a paragraph and a table of a Markdown document, without a heading.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "\n{}\n\n| | this run | another | apart | |\n|---|---|---|---|---|\n",
            self.verdict()
        );
        for pair in &self.pairs {
            let [here, there, apart, verdict] = cells(pair);
            let name = format!("{}: {}", pair.experiment, pair.name);
            let name = super::markdown::escaped(&name);
            let _ = writeln!(text, "| {name} | {here} | {there} | {apart} | {verdict} |");
        }
        text.push('\n');
        text
    }
}

/// Returns the cells of a table for `pair`: both ratios, their difference, and whether they agree.
fn cells(pair: &Pair) -> [String; 4] {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), times);
    let decimals = if pair.bound < MEASURED { 2 } else { 1 };
    let apart = pair.difference().map_or_else(String::new, |share| {
        let percent = share * 100.0;
        format!("{percent:+.decimals$} %").replace('-', "−")
    });
    let verdict = match pair.agrees() {
        Some(true) => "agrees",
        Some(false) => "DIFFERS",
        None => "not in both",
    };
    [
        ratio(pair.here),
        ratio(pair.there),
        apart,
        verdict.to_owned(),
    ]
}

/// Returns the rows whose ratios are compared: those that a report shows.
fn rows(report: &Report) -> impl Iterator<Item = &Row> {
    report.table.iter().filter(|row| speaks_alone(row))
}

/// Returns whether two rows have the same figure.
fn same(row: &Row, other: &Row) -> bool {
    (&row.experiment, &row.metric, &row.labels) == (&other.experiment, &other.metric, &other.labels)
}

/// Returns the pair of ratios of `row`'s figure, with the name of that row in `report`.
fn pair(report: &Report, row: &Row, here: Option<f64>, there: Option<f64>) -> Pair {
    let others: Vec<&Row> = report
        .table
        .iter()
        .filter(|other| other.experiment == row.experiment && other.metric == row.metric)
        .collect();
    let counted = row.labels.contains_key("icount");
    let name = row_name(row, &others);
    Pair::new(row.experiment.clone(), name, [here, there], counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(here: Option<f64>, there: Option<f64>, bound: f64) -> Pair {
        Pair {
            experiment: "page-fault/4k".into(),
            name: "faults a task".into(),
            here,
            there,
            bound,
        }
    }

    #[test]
    fn a_ratio_agrees_up_to_its_bound_whichever_is_greater() {
        for (here, there, bound, agrees) in [
            (11.0, 10.0, MEASURED, true),
            (10.0, 11.0, MEASURED, true),
            (11.1, 10.0, MEASURED, false),
            (10.0, 11.1, MEASURED, false),
            (10.1, 10.0, COUNTED, true),
            (10.2, 10.0, COUNTED, false),
        ] {
            let pair = pair(Some(here), Some(there), bound);
            assert_eq!(pair.agrees(), Some(agrees), "{here} and {there}");
        }
        assert_eq!(pair(Some(1.0), None, MEASURED).agrees(), None);
    }

    #[test]
    fn one_that_differs_is_enough_and_none_is_no_agreement() {
        let of = |pairs: Vec<Pair>| Agreement {
            pairs,
            with: "b.json".into(),
        };
        let good = pair(Some(2.0), Some(2.0), MEASURED);
        let bad = pair(Some(2.0), Some(3.0), MEASURED);
        let alone = pair(None, Some(3.0), MEASURED);
        assert!(of(vec![good.clone(), alone.clone()]).holds());
        assert!(!of(vec![alone]).holds());
        let both = of(vec![good, bad]);
        assert!(!both.holds());
        assert!(both.text().contains("1 of 2 ratios agree within 10 %"));
        assert!(both.text().contains("−50.0 %  DIFFERS"), "{}", both.text());
    }
}
