//! docs/series.md numbers its rows without gaps, and names no test, command or file that does not
//! exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The number of rows of each table of the page.
const ROWS: [usize; 5] = [37, 35, 36, 31, 19];
/// The first words of the cells that say a row's state.
const STATES: [&str; 3] = ["works", "differs", "absent"];

/// Returns the path of a file by its path in the repository.
fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

/// Returns the contents of a file of the repository. Panics if it cannot be read.
fn read(file: &str) -> String {
    fs::read_to_string(path(file)).expect(file)
}

/// Returns whether `line` is a row of the page's tables, which begins with its number.
fn is_row(line: &str) -> bool {
    let cell = line.strip_prefix("| ");
    cell.is_some_and(|cell| cell.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns whether `source` has a function `name` with the attribute `#[test]`.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let start = format!("fn {name}(");
    lines.iter().enumerate().any(|(at, line)| {
        let above = lines[..at].iter().rev();
        let mut attributes = above.take_while(|line| line.starts_with(['#', '/']));
        line.starts_with(&start) && attributes.any(|attribute| *attribute == "#[test]")
    })
}

/// What the page may name beside tests.
struct Known {
    /// The targets of the Makefile.
    targets: BTreeSet<String>,
    /// The sources of `ebb compare`, with `name: "NAME"` or `part("NAME"` for each experiment.
    compare: String,
}

impl Known {
    /// Reads the Makefile and the sources of `ebb compare`.
    fn new() -> Self {
        let makefile = read("Makefile");
        let rules = makefile
            .lines()
            .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        let targets = rules.filter_map(|line| Some(line.split_once(':')?.0));
        let sources = fs::read_dir(path("host/src/compare")).expect("the sources of `ebb compare`");
        let files = sources.filter_map(|file| Some(file.ok()?.path()));
        let rust = files.filter(|file| file.extension().is_some_and(|end| end == "rs"));
        Self {
            targets: targets.map(String::from).collect(),
            compare: rust
                .map(|file| fs::read_to_string(file).expect("a source"))
                .collect(),
        }
    }

    /// Returns whether `shown` exists: a test as `FILE: NAME`, a target as `make TARGET`, the
    /// experiments of an `ebb compare`, an `ebb run`, or a file.
    fn exists(&self, shown: &str) -> bool {
        if let Some((file, name)) = shown.split_once(": ").filter(|(f, _)| f.ends_with(".rs")) {
            return fs::read_to_string(path(file)).is_ok_and(|source| has_test(&source, name));
        }
        if let Some(target) = shown.strip_prefix("make ") {
            return self.targets.contains(target);
        }
        if let Some(words) = shown.strip_prefix("ebb compare ") {
            let mut experiments = words.split(' ').take_while(|word| !word.starts_with('-'));
            return experiments.all(|name| {
                // A list of experiments of one kind defines each by a function.
                ["name: ", "part(\n        "].iter().any(|before| {
                    let is_there = |end| self.compare.contains(&format!("{before}\"{name}{end}"));
                    is_there("\"") || is_there("/")
                })
            });
        }
        shown.starts_with("ebb run ") || path(shown).is_file()
    }

    /// Returns what is wrong with the rows of `page`, a line for each mistake.
    fn mistakes(&self, page: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for row in page.lines().filter(|line| is_row(line)) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let &["", number, _, state, shown, ""] = cells.as_slice() else {
                wrong.push(format!("{row}: not four cells"));
                continue;
            };
            if !STATES.iter().any(|word| state.starts_with(word)) {
                wrong.push(format!("{number}: no state is `{state}`"));
            }
            let quoted: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
            if quoted.is_empty() && shown != "–" {
                wrong.push(format!("{number}: nothing shows it, and there is no dash"));
            }
            let absent = quoted.into_iter().filter(|shown| !self.exists(shown));
            wrong.extend(absent.map(|shown| format!("{number}: there is no `{shown}`")));
        }
        wrong
    }
}

#[test]
fn all_that_the_page_names_exists() {
    let wrong = Known::new().mistakes(&read("docs/series.md"));
    assert!(wrong.is_empty(), "docs/series.md:\n{}", wrong.join("\n"));
}

#[test]
fn each_statement_has_a_row() {
    let page = read("docs/series.md");
    let rows = page.lines().filter(|line| is_row(line));
    let numbers = rows.filter_map(|row| row.split('|').nth(1).map(str::trim));
    let expected = ROWS
        .iter()
        .enumerate()
        .flat_map(|(table, rows)| (1..=*rows).map(move |row| format!("{table}.{row}")));
    assert_eq!(numbers.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn each_kind_of_mistake_is_found() {
    let known = Known::new();
    let shows = |state: &str, shown: &str| {
        let row = format!("| 0.1 | a statement | {state} | {shown} |");
        known.mistakes(&row).len()
    };
    let this = "kernel/tests/series_doc.rs";
    assert_eq!(shows("works", "–"), 0);
    assert_eq!(shows("works", "`docs/series.md`, `make test`"), 0);
    assert_eq!(
        shows("works", &format!("`{this}: each_statement_has_a_row`")),
        0
    );
    assert_eq!(shows("works", "`ebb compare page-fault memhog -c 2`"), 0);
    assert_eq!(shows("works", "`ebb compare faults faults/thp-16`"), 0);
    assert_eq!(shows("perhaps", "–"), 1);
    assert_eq!(shows("works", "a look at it"), 1);
    assert_eq!(shows("works", "a | b"), 1);
    assert_eq!(shows("works", "`docs/none.md`, `make none`"), 2);
    assert_eq!(
        shows("works", &format!("`{this}: none`, `none.rs: none`")),
        2
    );
    assert_eq!(shows("works", &format!("`{this}: read`")), 1, "no test");
    assert_eq!(shows("works", "`ebb compare page-fault none`"), 1);
}
