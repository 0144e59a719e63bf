//! Whether two comparisons agree: each ratio beside that of the other.

use super::schema::{Report, Row};
use super::wording::{row_name, speaks_alone, times};
use std::fmt::Write as _;

/// The comparison of `--against`, and where it came from.
#[derive(Debug)]
pub(crate) struct Other<R> {
    pub(crate) report: R,
    pub(crate) name: String,
    /// Nothing was run: whoever asks does not want the table once more.
    pub(crate) alone: bool,
}

/// So far may ratios lie apart that the machine has a say in.
const MEASURED: f64 = 0.10;
/// And so far those of counted instructions.
const COUNTED: f64 = 0.01;

/// One ratio in both comparisons.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Pair {
    experiment: String,
    name: String,
    here: Option<f64>,
    there: Option<f64>,
    bound: f64,
}

impl Pair {
    /// A figure's ratios, here and there; those of counted instructions lie closer.
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

    /// How far the smaller ratio is exceeded by the greater one, with the sign of this one's
    /// distance; `None` where one of them is missing.
    fn difference(&self) -> Option<f64> {
        let (here, there) = (self.here?, self.there?);
        let apart = here.max(there) / here.min(there) - 1.0;
        Some(if here < there { -apart } else { apart })
    }

    /// Whether the ratios agree; `None` where there is no pair of them.
    fn agrees(&self) -> Option<bool> {
        // What is printed as the bound is within it.
        Some(self.difference()?.abs() <= self.bound + 1e-9)
    }
}

/// All ratios of two comparisons.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Agreement {
    pairs: Vec<Pair>,
    with: String,
}

impl Agreement {
    /// Holds every ratio of `here` against that of `there`, which was read from `with`, in the
    /// experiments that both did.
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

    /// These ratios, of which one at least of each pair is there; the others were read from `with`.
    pub(crate) fn new(mut pairs: Vec<Pair>, with: String) -> Self {
        pairs.retain(|pair| pair.here.is_some() || pair.there.is_some());
        Self { pairs, with }
    }

    /// Whether all ratios that both have agree, and there is one.
    pub(crate) fn holds(&self) -> bool {
        let verdicts: Vec<bool> = self.pairs.iter().filter_map(Pair::agrees).collect();
        !verdicts.is_empty() && verdicts.iter().all(|agrees| *agrees)
    }

    /// The verdict in a sentence.
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

    /// As text for a terminal.
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

    /// As a section of a document.
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

/// What is printed of a pair.
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

/// The rows that are held against others: those that a report shows.
fn rows(report: &Report) -> impl Iterator<Item = &Row> {
    report.table.iter().filter(|row| speaks_alone(row))
}

fn same(row: &Row, other: &Row) -> bool {
    (&row.experiment, &row.metric, &row.labels) == (&other.experiment, &other.metric, &other.labels)
}

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
