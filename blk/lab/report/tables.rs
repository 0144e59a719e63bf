//! The tables, in Markdown.

use crate::records::{Backend, Io, Pool, Records, Swap};
use crate::statistics::{CONFIDENCE, Difference, Summary};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Durations of the squeeze in the order of the table, 0 for none, with the seed's pswpin and
/// pswpout.
const DURATIONS: [(u32, u32, u32); 4] = [
    (0, 76_672, 185_799),
    (1, 852, 6_424),
    (10, 212, 3_325),
    (100, 203, 3_340),
];
/// The squeeze that is measured with and without a hold, its duration in ms. It is the default.
const HELD_SQUEEZE_MS: u32 = 10;
/// The device on which persistent grants and the hold are measured.
const FAST: &str = "fast";
/// The seed's runs of dd: device, `max_buffer_pages`, then minimum, maximum, median, average and
/// deviation in MB/s. It proved no difference.
const SEED_IO: [(&str, Pool, [f64; 5]); 4] = [
    ("slow", Pool::Empty, [38.7, 45.8, 38.7, 40.12, 3.175_216_5]),
    ("slow", Pool::Full, [38.7, 45.8, 38.7, 40.12, 3.175_216_5]),
    (FAST, Pool::Empty, [417.0, 423.0, 420.0, 419.4, 2.509_980_1]),
    (FAST, Pool::Full, [414.0, 425.0, 416.0, 417.8, 4.438_468_2]),
];

/// The beginning of the names of loads of the reviewer's job.
const REVIEWERS_LOAD: &str = "randrw";

/// Returns the report, and the names of missing figures.
pub(crate) fn report(records: &Records) -> (String, Vec<String>) {
    let mut report = Report::default();
    let (held, plain): (Vec<Swap>, Vec<Swap>) =
        records.swap.iter().partition(|run| run.hold_ms > 0);
    report.swap(&plain);
    report.hold(&plain, &held);
    let (of_reviewer, of_seed): (Vec<Io>, Vec<Io>) = records
        .io
        .iter()
        .cloned()
        .partition(|run| run.load.starts_with(REVIEWERS_LOAD));
    report.io(&of_seed);
    report.reviewers_job(&of_reviewer);
    report.facts(&records.facts);
    report.failures(&records.failures);
    (report.text, report.lacking)
}

#[derive(Default)]
struct Report {
    text: String,
    lacking: Vec<String>,
}

impl Report {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn swap(&mut self, runs: &[Swap]) {
        if runs.is_empty() {
            self.lacking.push("no run counted swap traffic".to_owned());
            return;
        }
        self.line("\n### Swap traffic by the squeeze's duration\n");
        self.line(
            "Pages in and out of swap in dom0, medians with least and most. The seed's machine, disks and load were others.\n",
        );
        let mut head = "| squeeze | seed: in | out |".to_owned();
        let mut rule = "|---|---|---|".to_owned();
        let backends = present(runs.iter().map(|run| run.backend));
        for backend in &backends {
            let _ = write!(head, " {}: in | out | seconds |", backend.name());
            rule.push_str("---|---|---|");
        }
        self.line(&head);
        self.line(&rule);
        for (duration, seed_in, seed_out) in DURATIONS {
            let name = if duration == 0 {
                "off".to_owned()
            } else {
                format!("{duration} ms")
            };
            let mut row = format!("| {name} | {} | {} |", whole(seed_in), whole(seed_out));
            for &backend in &backends {
                for figure in [pages_in, pages_out, seconds] {
                    match of(runs, backend, duration, figure) {
                        Some(summary) => {
                            let _ = write!(row, " {} |", range(&summary));
                        }
                        None => {
                            row.push_str(" – |");
                            self.lacking
                                .push(format!("no swap traffic of {} at {name}", backend.name()));
                        }
                    }
                }
            }
            self.line(&row);
        }
        self.swap_change(runs, &backends);
    }

    /// Adds the table that compares each squeeze with no squeeze.
    fn swap_change(&mut self, runs: &[Swap], backends: &[Backend]) {
        self.line(&format!(
            "\nBoth directions together beside no squeeze, averages, Welch's t-test at {:.0} %:\n",
            CONFIDENCE * 100.0
        ));
        let mut head = "| squeeze | seed |".to_owned();
        for backend in backends {
            let _ = write!(head, " {} |", backend.name());
        }
        self.line(&head);
        self.line(&format!("|---|---|{}", "---|".repeat(backends.len())));
        let seed_off = f64::from(DURATIONS[0].1 + DURATIONS[0].2);
        for (duration, seed_in, seed_out) in &DURATIONS[1..] {
            let seed = f64::from(seed_in + seed_out) / seed_off - 1.0;
            let mut row = format!("| {duration} ms | {} |", percent(seed));
            for &backend in backends {
                let cell = match (
                    of(runs, backend, *duration, pages_swapped),
                    of(runs, backend, 0, pages_swapped),
                ) {
                    (Some(with), Some(without)) => difference(&with, &without),
                    _ => "–".to_owned(),
                };
                let _ = write!(row, " {cell} |");
            }
            self.line(&row);
        }
    }

    /// Adds the table that compares squeezes of `ebb blk` with a hold, the runs `held`, with those
    /// in `plain`, which have none. Adds nothing if `ebb blk` did not run.
    fn hold(&mut self, plain: &[Swap], held: &[Swap]) {
        if !plain.iter().any(|run| run.backend == Backend::Ebb) {
            return;
        }
        let holds: BTreeSet<u32> = held.iter().map(|run| run.hold_ms).collect();
        let Some(&hold_ms) = holds.first() else {
            self.lacking.push("no run had a hold".to_owned());
            return;
        };
        self.line("\n### What a hold returns and costs\n");
        self.line(&format!(
            "`ebb blk` in the same runs. Columns: the squeeze, and `squeeze_hold_ms`. Medians with least and most. Last column: the hold beside the same squeeze without one, averages, Welch's t-test at {:.0} %.\n",
            CONFIDENCE * 100.0
        ));
        self.line(&format!(
            "| | off | {HELD_SQUEEZE_MS} ms, no hold | {HELD_SQUEEZE_MS} ms, {} ms | with the hold |",
            whole(hold_ms)
        ));
        self.line("|---|---|---|---|---|");
        let rows: [(&str, Figure); 4] = [
            ("free pages in the pools at the end", pages_kept),
            ("pages that the pools returned", pages_returned),
            ("pages in and out of swap", pages_swapped),
            ("written, MB/s", megabytes_a_second),
        ];
        for (name, figure) in rows {
            let summaries = [
                of(plain, Backend::Ebb, 0, figure),
                of(plain, Backend::Ebb, HELD_SQUEEZE_MS, figure),
                of(held, Backend::Ebb, HELD_SQUEEZE_MS, figure),
            ];
            let mut row = format!("| {name} |");
            for summary in &summaries {
                match summary {
                    Some(summary) => {
                        let _ = write!(row, " {} |", range(summary));
                    }
                    None => {
                        row.push_str(" – |");
                        self.lacking
                            .push(format!("a run with a hold, or beside it, lacks: {name}"));
                    }
                }
            }
            let verdict = match &summaries {
                [_, Some(without), Some(with)] => difference(with, without),
                _ => "–".to_owned(),
            };
            self.line(&format!("{row} {verdict} |"));
        }
    }

    fn io(&mut self, runs: &[Io]) {
        if runs.is_empty() {
            self.lacking.push("no run measured I/O".to_owned());
            return;
        }
        self.line("\n### What an empty pool costs\n");
        self.line(&format!(
            "Pages: `max_buffer_pages`. With 0, and in a squeeze that does not end, both back-ends give free pages back after each batch of requests. *Held* is the hold of a squeeze, which `ebb blk` alone has. With persistent grants little data goes through a pool. Last column: beside 1024, averages, Welch's t-test at {:.0} %.\n",
            CONFIDENCE * 100.0
        ));
        self.io_table(runs);
    }

    /// Adds the table of the job that the reviewer asked for.
    fn reviewers_job(&mut self, runs: &[Io]) {
        if runs.is_empty() {
            self.lacking
                .push("the reviewer's job did not run".to_owned());
            return;
        }
        self.line("\n### The reviewer's job\n");
        self.line("fio with `randrw`, 4 jobs, depth 64, 4 KiB, for 120 s unless the laboratory's facts say otherwise, on a disk of `null_blk` in a guest with 4 CPUs. Columns as above.\n");
        self.io_table(runs);
    }

    /// Adds a table of I/O, with a row for each device, load, back-end and pool.
    fn io_table(&mut self, runs: &[Io]) {
        self.line("| device | load | back-end | pages | runs | min | max | median | average | deviation | beside 1024 |");
        self.line("|---|---|---|---|---|---|---|---|---|---|---|");
        let loads: BTreeSet<_> = runs
            .iter()
            .map(|run| (run.device.as_str(), run.load.as_str(), run.unit.as_str()))
            .collect();
        for (device, load, unit) in loads {
            if load == "dd" {
                self.seed_io(device);
            }
            for backend in Backend::ALL {
                let figures = |pool: Pool| {
                    let figures: Vec<_> = runs
                        .iter()
                        .filter(|run| run.device == device && run.load == load)
                        .filter(|run| run.backend == backend && run.pool == pool)
                        .map(|run| run.value)
                        .collect();
                    Summary::of(&figures)
                };
                let summaries = Pool::ALL.map(figures);
                if summaries.iter().all(Option::is_none) {
                    continue;
                }
                let full = figures(Pool::Full);
                for (pool, summary) in Pool::ALL.into_iter().zip(summaries) {
                    let name = pool.name();
                    let Some(it) = summary else {
                        if is_measured(device, backend, pool) {
                            self.lacking.push(format!(
                                "no {load} on the {device} device of {} at {name}",
                                backend.name()
                            ));
                        }
                        continue;
                    };
                    let verdict = match &full {
                        Some(full) if pool != Pool::Full => difference(&it, full),
                        _ => String::new(),
                    };
                    self.line(&format!(
                        "| {device} | {load}, {unit} | {} | {name} | {} | {} | {} | {} | {} | {} | {verdict} |",
                        backend.name(),
                        it.count,
                        short(it.min),
                        short(it.max),
                        short(it.median),
                        short(it.mean),
                        short(it.deviation),
                    ));
                }
            }
        }
    }

    fn seed_io(&mut self, device: &str) {
        for (_, pool, [min, max, median, mean, deviation]) in
            SEED_IO.iter().filter(|row| row.0 == device)
        {
            let verdict = if *pool == Pool::Full {
                ""
            } else {
                "not proven"
            };
            let name = pool.name();
            self.line(&format!(
                "| {device} | dd, MB/s | the seed's | {name} | 5 | {min} | {max} | {median} | {mean} | {} | {verdict} |",
                short(*deviation)
            ));
        }
    }

    fn facts(&mut self, facts: &[String]) {
        if facts.is_empty() {
            return;
        }
        self.line("\nThe laboratory:\n");
        for fact in facts {
            self.line(&format!("- {}", escape(fact)));
        }
    }

    fn failures(&mut self, failures: &[String]) {
        if failures.is_empty() {
            return;
        }
        self.line("\nWhat failed:\n");
        for failure in failures {
            self.line(&format!("- {}", escape(failure)));
        }
    }
}

/// Returns whether the experiments measure `pool` on the device called `device` of `backend`.
fn is_measured(device: &str, backend: Backend, pool: Pool) -> bool {
    match pool {
        Pool::Empty | Pool::Squeezed | Pool::Full => true,
        Pool::Held => device == FAST && backend == Backend::Ebb,
        Pool::Persistent => device == FAST,
    }
}

/// A figure of a run. `None` if the run's back-end does not report it.
type Figure = fn(&Swap) -> Option<f64>;

fn pages_in(run: &Swap) -> Option<f64> {
    Some(run.pswpin)
}

fn pages_out(run: &Swap) -> Option<f64> {
    Some(run.pswpout)
}

fn pages_swapped(run: &Swap) -> Option<f64> {
    Some(run.pswpin + run.pswpout)
}

fn seconds(run: &Swap) -> Option<f64> {
    Some(run.seconds)
}

/// Returns the rate at which the guest wrote. It is not finite if the run took no time.
fn megabytes_a_second(run: &Swap) -> Option<f64> {
    Some(run.written_mib * 1.048_576 / run.seconds)
}

/// Returns the free pages of all pools after a run.
fn pages_kept(run: &Swap) -> Option<f64> {
    run.pool_pages.map(|pages| pages.kept)
}

/// Returns the pages that all pools returned in a run.
fn pages_returned(run: &Swap) -> Option<f64> {
    run.pool_pages.map(|pages| pages.returned)
}

/// Summarises `figure` of the runs with `backend` and a squeeze of `duration` ms. Returns `None` if
/// there are none, or if a figure is not reported or not finite.
fn of(runs: &[Swap], backend: Backend, duration: u32, figure: Figure) -> Option<Summary> {
    let figures: Option<Vec<_>> = runs
        .iter()
        .filter(|run| run.backend == backend && run.squeeze_ms == duration)
        .map(figure)
        .collect();
    Summary::of(&figures?)
}

fn present(backends: impl Iterator<Item = Backend>) -> Vec<Backend> {
    let backends: BTreeSet<_> = backends.collect();
    backends.into_iter().collect()
}

fn difference(figures: &Summary, reference: &Summary) -> String {
    let share = |part: f64| part / reference.mean;
    if reference.mean <= 0.0 {
        return "nothing to compare with".to_owned();
    }
    match Difference::between(figures, reference) {
        Difference::Unknown => format!(
            "{} (one run)",
            percent(share(figures.mean - reference.mean))
        ),
        Difference::NotProven { within } => format!(
            "{}, not proven (it could be {:.1} %)",
            percent(share(figures.mean - reference.mean)),
            share(within) * 100.0
        ),
        Difference::Proven { by, within } => format!(
            "**{}** ± {:.1} %",
            percent(share(by)),
            share(within) * 100.0
        ),
    }
}

fn percent(share: f64) -> String {
    let text = format!("{:+.1} %", share * 100.0);
    text.replace('-', "−")
}

/// Returns the median with minimum and maximum.
fn range(summary: &Summary) -> String {
    format!(
        "{} ({} to {})",
        short(summary.median),
        short(summary.min),
        short(summary.max)
    )
}

/// Returns a figure with three significant digits, or all digits of a whole number.
fn short(figure: f64) -> String {
    if figure >= 100.0 {
        grouped(&format!("{figure:.0}"))
    } else if figure >= 10.0 {
        format!("{figure:.1}")
    } else {
        format!("{figure:.2}")
    }
}

fn whole(figure: u32) -> String {
    grouped(&figure.to_string())
}

/// Separates groups of three digits by commas.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Escapes text of a console for a Markdown page.
fn escape(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_control())
        .flat_map(|letter| {
            let marked = "\\`*_<>|[]#".contains(letter);
            marked.then_some('\\').into_iter().chain([letter])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a record of a run that swapped `pages` in and out and took a second. The pools of
    /// `ebb` kept a tenth of `pages` and returned as many pages as it wrote.
    fn swap(backend: &str, ms: u32, hold_ms: u32, pages: u32) -> String {
        let pools = match backend {
            "ebb" => format!("kept={} returned={pages}", pages / 10),
            _ => String::new(),
        };
        format!(
            "LAB swap backend={backend} squeeze_ms={ms} hold_ms={hold_ms} round=0 mib=48 \
             pswpin={pages} pswpout={pages} began=0 ended=1 {pools}\n"
        )
    }

    #[test]
    fn rows_stand_beside_the_seeds() {
        let mut records = Records::default();
        for (ms, pages) in [(0, 1000), (1, 900), (10, 500), (100, 10)] {
            for more in 0..3 {
                records.read(&swap("kernel", ms, 0, pages + more));
            }
        }
        for value in [100, 101, 102] {
            records.read(&format!(
                "LAB io backend=kernel pool=1024 device=fast load=dd value={value} unit=MB/s\n\
                 LAB io backend=kernel pool=0 device=fast load=dd value={} unit=MB/s\n\
                 LAB io backend=kernel pool=persistent device=fast load=dd value={} unit=MB/s\n\
                 LAB io backend=kernel pool=squeezed device=fast load=dd value={value} unit=MB/s\n",
                value - 50,
                value + 50
            ));
        }
        let (_, lacking) = report(&records);
        assert_eq!(lacking, ["the reviewer's job did not run"]);
        for (pool, value) in [("0", 90), ("squeezed", 100), ("1024", 100)] {
            for more in 0..2 {
                records.read(&format!(
                    "LAB io backend=ebb pool={pool} device=null_blk load=randrw-read value={} unit=IOPS\n",
                    value + more
                ));
            }
        }
        let (text, lacking) = report(&records);
        assert!(lacking.is_empty(), "{lacking:?}");
        let job = text.split("### The reviewer's job").nth(1);
        let row = "| null_blk | randrw-read, IOPS | `ebb blk` | 0 | 2 | 90.0 | 91.0 |";
        assert!(job.is_some_and(|job| job.contains(row)), "{text}");
        assert!(!text.contains("### What a hold"), "{text}");
        for row in [
            "| 10 ms | 212 | 3,325 | 501 (500 to 502) |",
            "| 100 ms | −98.7 % | **−98.9 %**",
            "| fast | dd, MB/s | the seed's | 0 | 5 | 417 | 423 |",
            "| 51.0 | 51.0 | 1.00 | **−49.5 %** ±",
            "| `xen-blkback` | 1024, persistent grants | 3 | 150 | 152 | 151 | 151 | 1.00 | **+49.5 %** ±",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
    }

    #[test]
    fn a_hold_stands_beside_the_same_squeeze_without_one() {
        let mut records = Records::default();
        let runs = [
            (0, 0, 4000),
            (1, 0, 900),
            (10, 0, 800),
            (100, 0, 10),
            (10, 10_000, 200),
        ];
        for (ms, hold_ms, pages) in runs {
            for more in 0..3 {
                records.read(&swap("ebb", ms, hold_ms, pages + more * 10));
            }
        }
        let (text, _) = report(&records);
        for row in [
            "| | off | 10 ms, no hold | 10 ms, 10,000 ms | with the hold |",
            "| free pages in the pools at the end | 401 (400 to 402) | 81.0 (80.0 to 82.0) | 21.0 (20.0 to 22.0) | **−74.1 %** ±",
            "| pages in and out of swap | 8,020 (8,000 to 8,040) | 1,620 (1,600 to 1,640) | 420 (400 to 440) | **−74.1 %** ±",
            "| written, MB/s | 50.3 (50.3 to 50.3) | 50.3 (50.3 to 50.3) | 50.3 (50.3 to 50.3) | +0.0 %, not proven",
            // The run with a hold is in no row of the squeezes.
            "| 10 ms | 212 | 3,325 | 810 (800 to 820) |",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
    }

    #[test]
    fn pools_that_are_measured_nowhere_are_not_lacking() {
        let mut records = Records::default();
        for (device, backend) in [("slow", "ebb"), ("fast", "ebb"), ("fast", "kernel")] {
            for pool in ["0", "squeezed", "1024"] {
                records.read(&format!(
                    "LAB io backend={backend} pool={pool} device={device} load=dd value=1 unit=MB/s\n"
                ));
            }
        }
        let (_, lacking) = report(&records);
        let of_io: Vec<_> = lacking.iter().filter(|what| what.contains("dd")).collect();
        assert_eq!(
            of_io,
            [
                "no dd on the fast device of `xen-blkback` at 1024, persistent grants",
                "no dd on the fast device of `ebb blk` at 1024, held",
                "no dd on the fast device of `ebb blk` at 1024, persistent grants",
            ]
        );
    }

    #[test]
    fn what_is_lacking_is_named() {
        let mut records = Records::default();
        records.read(&swap("ebb", 10, 0, 5));
        let (_, lacking) = report(&records);
        assert!(
            lacking.contains(&"no run had a hold".to_owned()),
            "{lacking:?}"
        );
        assert!(
            lacking.iter().any(|what| what.contains("at 100 ms")),
            "{lacking:?}"
        );
        assert!(
            lacking.iter().any(|what| what.contains("I/O")),
            "{lacking:?}"
        );
    }

    #[test]
    fn a_console_cannot_write_the_page() {
        assert_eq!(escape("a|b <img> \u{1b}[1m"), "a\\|b \\<img\\> \\[1m");
    }
}
