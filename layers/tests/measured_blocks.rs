//! The blocks of figures that commands write into the documents, by `scripts/section`: each says
//! when it was taken, of which commit, and by which command. The text around them names no figure
//! that no block of its page has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Blocks whose figures are compared with each other, so that all must be on one page and come from
/// one commit.
const COMPARED: &[&[&str]] = &[&["ebb compare", "another comparison"]];

/// The index of the measured pages.
const INDEX: &str = "docs/measurements.md";
/// The folder of the measured pages.
const MEASURED: &str = "docs/measured";

/// Numbers with a unit that no command measures, by the page whose text names them: sizes and times
/// of the product, of an experiment, or of a published patch series.
const PARAMETERS: &[(&str, &[&str])] = &[
    (
        "README.md",
        &["600 MiB", "128 instructions", "512 instructions"],
    ),
    (
        "docs/measured/compaction.md",
        &["2 MiB", "20 s", "128 instructions", "512 instructions"],
    ),
    (
        "docs/measured/compare.md",
        &[
            "100 ms",
            "50 ms",
            "1 GiB",
            "128 instructions",
            "512 instructions",
        ],
    ),
    ("docs/measured/cost-test.md", &["8 s", "32 MiB", "256 MiB"]),
    ("docs/measured/elasticity.md", &["20 GiB", "16 GiB"]),
    ("docs/measured/faults.md", &["5 s", "6 GiB", "32 GB"]),
    ("docs/measured/give-back.md", &["1 GiB", "2 GiB", "50 ms"]),
    ("docs/measured/host-pages.md", &["1.5 GiB"]),
    (
        "docs/measured/latency.md",
        &[
            "1 ms", "4 KiB", "2 MiB", "1 MiB", "1 GiB", "16 MiB", "0.2 ms", "10 ms",
        ],
    ),
    (
        "docs/measured/pool.md",
        &["1 GiB", "40 GiB", "128 instructions", "512 instructions"],
    ),
    ("docs/measured/root-test.md", &["1 GiB"]),
    (
        "docs/measured/runtimes-test.md",
        &["300 MiB", "2 GiB", "10 s"],
    ),
    ("docs/measured/share-test.md", &["500 MiB"]),
    ("docs/measured/stdio-test.md", &["0.01 s"]),
    (
        "docs/measured/swap-test.md",
        &["640 MiB", "15 s", "6 GB", "1.0 GB"],
    ),
    ("docs/measured/vm-exits.md", &["64 MiB", "256 MiB", "2 MiB"]),
    (
        "docs/measurements.md",
        &["24 GiB", "1 ns", "512 instructions"],
    ),
];

/// Units of figures. A number before another word is a count, a version or a date.
const UNITS: &[&str] = &[
    "s",
    "ms",
    "µs",
    "ns",
    "%",
    "×",
    "KiB",
    "MiB",
    "GiB",
    "GB",
    "k",
    "M",
    "instructions",
    "times",
];

/// Where a block's figures come from.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Origin {
    /// The day, as in `2026-11-28`.
    date: String,
    /// The abbreviated hash, in hexadecimal.
    commit: String,
    command: String,
}

/// A block of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Block {
    name: String,
    /// The origin, or the reason why there is none.
    origin: Result<Origin, String>,
}

/// The first words of a block without figures, which says how to take them.
const NOT_TAKEN: &str = "*Not taken since the code changed: run `make ";

/// Returns the places and names of the lines of `lines` with which blocks begin.
fn begins<'a>(lines: &[&'a str]) -> Vec<(usize, &'a str)> {
    let named = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = line.strip_prefix("<!-- ")?.strip_suffix(": begin -->")?;
        Some((at, name))
    });
    named.collect()
}

/// Returns the blocks with figures of a document with the contents `text`.
fn blocks(text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let taken = begins(&lines).into_iter().filter(|(at, _)| {
        !lines
            .get(at + 1)
            .is_some_and(|line| line.starts_with(NOT_TAKEN))
    });
    taken
        .map(|(at, name)| Block {
            name: name.to_owned(),
            origin: origin(lines.get(at + 1).copied().unwrap_or("")),
        })
        .collect()
}

/// Reads the line that `scripts/section` writes first.
fn origin(line: &str) -> Result<Origin, String> {
    let parts = || {
        let rest = line.strip_prefix("*Taken ")?.strip_suffix("`.*")?;
        let (date, rest) = rest.split_once(", commit ")?;
        let (commit, command) = rest.split_once(", by `")?;
        Some((date, commit, command))
    };
    let Some((date, commit, command)) = parts() else {
        return Err(format!("its first line is {line:?}"));
    };
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let days: Vec<&str> = date.split('-').collect();
    let is_date = matches!(days[..], [y, m, d] if digits(y, 4) && digits(m, 2) && digits(d, 2));
    if !is_date {
        return Err(format!("its date is {date:?}"));
    }
    if commit.len() < 7 || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(format!(
            "its commit is {commit:?}; take it from sources without changes"
        ));
    }
    if command.trim().is_empty() || command.contains('`') {
        return Err(format!("its command is {command:?}"));
    }
    Ok(Origin {
        date: date.to_owned(),
        commit: commit.to_owned(),
        command: command.to_owned(),
    })
}

/// Returns what is wrong with the blocks of one page. Each needs an origin. Blocks in one group of
/// `compared` must be of one commit.
fn faults(blocks: &[Block], compared: &[&[&str]]) -> Vec<String> {
    let mut faults = Vec::new();
    for block in blocks {
        let name = &block.name;
        if let Err(why) = &block.origin {
            faults.push(format!("{name}: {why}"));
        }
        if blocks.iter().filter(|other| other.name == *name).count() > 1 {
            faults.push(format!("{name} is there twice"));
        }
    }
    for group in compared {
        let of_group = blocks
            .iter()
            .filter(|block| group.contains(&block.name.as_str()));
        let commits: Vec<String> = of_group
            .map(|block| match &block.origin {
                Ok(origin) => format!("{} of {}", block.name, origin.commit),
                Err(_) => format!("{} of an unknown commit", block.name),
            })
            .collect();
        let of = |text: &String| text.rsplit(' ').next().map(str::to_owned);
        if commits.windows(2).any(|pair| of(&pair[0]) != of(&pair[1])) {
            faults.push(format!("compared with each other: {}", commits.join(", ")));
        }
    }
    faults
}

/// Returns the faults of a page that has the blocks `names`: groups of `compared` that the page has
/// only in part.
fn divided(names: &[&str], compared: &[&[&str]]) -> Vec<String> {
    let is_here = |name: &&str| names.contains(name);
    compared
        .iter()
        .filter(|group| group.iter().any(is_here) && !group.iter().all(is_here))
        .map(|group| format!("not all are here: {}", group.join(", ")))
        .collect()
}

/// Returns the folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Adds to `found` all Markdown files in `folder` and below, except in build folders.
fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let entry = entry.expect("the folder can be read");
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let kind = entry.file_type().expect("its kind is known");
        if kind.is_dir() && name != "target" && !name.starts_with('.') {
            documents(&path, found);
        } else if kind.is_file() && name.ends_with(".md") {
            found.push(path);
        }
    }
}

#[test]
fn every_block_says_when_how_and_of_which_commit_it_was_taken() {
    let mut paths = Vec::new();
    documents(&root(), &mut paths);
    let mut seen: Vec<String> = Vec::new();
    let mut wrong: Vec<String> = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("it is text");
        let lines: Vec<&str> = text.lines().collect();
        let names: Vec<&str> = begins(&lines).into_iter().map(|(_, name)| name).collect();
        let mut faults = faults(&blocks(&text), COMPARED);
        faults.extend(divided(&names, COMPARED));
        wrong.extend(
            faults
                .iter()
                .map(|fault| format!("{}: {fault}", path.display())),
        );
        seen.extend(names.into_iter().map(str::to_owned));
    }
    for name in COMPARED.iter().copied().flatten() {
        if !seen.iter().any(|known| known == name) {
            wrong.push(format!("there is no block {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs git in the repository. Returns whether it succeeded, and what it printed.
fn git(arguments: &[&str]) -> (bool, String) {
    let output = std::process::Command::new("git")
        .current_dir(root())
        .args(arguments)
        .output()
        .expect("git is there");
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success(), printed)
}

#[test]
#[ignore = "needs the history: make measure-readme"]
fn every_commit_of_a_block_is_in_the_history() {
    // A package of the sources has no history, and a shallow clone only a part of it.
    if git(&["rev-parse", "--is-shallow-repository"]) != (true, "false".to_owned()) {
        return;
    }
    let mut paths = Vec::new();
    documents(&root(), &mut paths);
    let mut commits: BTreeSet<String> = BTreeSet::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("it is text");
        let origins = blocks(&text)
            .into_iter()
            .filter_map(|block| block.origin.ok());
        commits.extend(origins.map(|origin| origin.commit));
    }
    assert!(!commits.is_empty());
    let unknown: Vec<&String> = commits
        .iter()
        .filter(|commit| !git(&["merge-base", "--is-ancestor", commit.as_str(), "HEAD"]).0)
        .collect();
    assert!(
        unknown.is_empty(),
        "no ancestor of this commit; take their blocks again: {unknown:?}"
    );
}

/// Returns the parts of a document with the contents `text`: that in blocks, and the text around
/// them without code.
fn parts(text: &str) -> (String, String) {
    let (mut inside, mut around) = (String::new(), String::new());
    let (mut in_block, mut in_code) = (false, false);
    for line in text.lines() {
        if line.starts_with("<!-- ") {
            in_block = line.ends_with(": begin -->");
        } else if in_block {
            inside.extend([line, "\n"]);
        } else if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !line.starts_with("    ") {
            // Every second piece is between backquotes. A command may go on in the next line.
            let spoken = line.split('`').step_by(2);
            around.extend(spoken.chain(["\n"]));
        }
    }
    (inside, around)
}

/// Returns the numbers of a text, each as it is written and with the word that follows it.
fn numbers(text: &str) -> Vec<(String, String)> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let mut rest = text;
    let mut found = Vec::new();
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let ahead = rest[..start].chars().next_back();
        let tail = &rest[start..];
        let end = tail.find(|c| !is_number(c)).unwrap_or(tail.len());
        let number = tail[..end].trim_end_matches(['.', ',']);
        let after = tail[end..].trim_start_matches([' ', '\n']);
        let unit = after
            .find(|c: char| !c.is_alphabetic() && !matches!(c, '%' | '×'))
            .map_or(after, |end| &after[..end]);
        // A digit in a name is no number: `x86`, `C11`.
        if !ahead.is_some_and(|c| c.is_alphanumeric() || c == '-') {
            found.push((number.to_owned(), unit.to_owned()));
        }
        rest = &tail[end..];
    }
    found
}

/// Returns the figures of the text `around` blocks that are neither in `known` nor in `parameters`.
fn unknown_figures(around: &str, known: &BTreeSet<String>, parameters: &[&str]) -> Vec<String> {
    numbers(around)
        .into_iter()
        .filter(|(number, unit)| UNITS.contains(&unit.as_str()) && !known.contains(number))
        .map(|(number, unit)| format!("{number} {unit}"))
        .filter(|figure| !parameters.contains(&figure.as_str()))
        .collect()
}

/// Returns the paths of the pages whose text may only name figures of their own blocks or of
/// [`PARAMETERS`]: README.md, [`INDEX`], and each page of [`MEASURED`].
fn checked() -> Vec<String> {
    let mut paths = Vec::new();
    documents(&root().join(MEASURED), &mut paths);
    let names = paths.iter().filter_map(|path| path.file_name());
    let mut pages: Vec<String> = names
        .map(|name| format!("{MEASURED}/{}", name.to_string_lossy()))
        .collect();
    pages.extend(["README.md", INDEX].map(str::to_owned));
    pages.sort();
    pages
}

/// Returns the faults of the figures that a page with the contents `text` names around its blocks:
/// figures that are neither in a block nor in `parameters`, and parameters that it does not name.
fn figure_faults(text: &str, parameters: &[&str]) -> Vec<String> {
    let (inside, around) = parts(text);
    let known = numbers(&inside).into_iter().map(|(n, _)| n).collect();
    let unknown = unknown_figures(&around, &known, parameters);
    let mut faults: Vec<String> = unknown
        .into_iter()
        .map(|figure| format!("no block has {figure}"))
        .collect();
    let named = unknown_figures(&around, &BTreeSet::new(), &[]);
    for parameter in parameters {
        if !named.iter().any(|figure| figure == parameter) {
            faults.push(format!("the text does not name {parameter}: unlist it"));
        }
    }
    faults
}

#[test]
fn text_names_no_figure_that_no_block_has() {
    let pages = checked();
    let mut wrong: Vec<String> = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(root().join(page)).expect("it is text");
        let of_page = PARAMETERS.iter().filter(|(name, _)| name == page);
        let parameters: Vec<&str> = of_page.flat_map(|(_, figures)| *figures).copied().collect();
        let faults = figure_faults(&text, &parameters);
        wrong.extend(faults.iter().map(|fault| format!("{page}: {fault}")));
    }
    for (name, _) in PARAMETERS {
        if !pages.iter().any(|page| page == name) {
            wrong.push(format!("there is no page {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_figure_of_the_text_is_found_unless_a_block_has_it() {
    let text = "It takes 12.5 s, or 3 `4 s` 7 MiB.\n\n    9 s\n<!-- a: begin -->\n| 12.5 s |\n\
                <!-- a: end -->\n```\n8 s\n```\nOf 2 MiB 95 % on x86 6.1 are 1,200\ninstructions.";
    let (inside, around) = parts(text);
    let known = numbers(&inside).into_iter().map(|(n, _)| n).collect();
    let unknown = unknown_figures(&around, &known, &["2 MiB"]);
    assert_eq!(unknown, ["7 MiB", "95 %", "1,200 instructions"]);
    let all = ["2 MiB", "7 MiB", "95 %", "1,200 instructions"];
    assert!(figure_faults(text, &all).is_empty());
    // A parameter stays listed when a block has the same number.
    let more = ["12.5 s", "2 MiB", "7 MiB", "95 %", "1,200 instructions"];
    assert!(figure_faults(text, &more).is_empty());
    assert_eq!(
        figure_faults(text, &["2 MiB", "7 MiB", "95 %", "3 MiB"]),
        [
            "no block has 1,200 instructions",
            "the text does not name 3 MiB: unlist it"
        ]
    );
}

#[test]
fn the_readme_has_the_figures_of_the_measurements() {
    let output = std::process::Command::new(root().join("scripts/figures"))
        .output()
        .expect("a shell runs it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let readme = fs::read_to_string(root().join("README.md")).expect("it is text");
    let table = String::from_utf8(output.stdout).expect("it is text");
    assert!(
        readme.contains(&table),
        "run `make measure-readme`: README.md should have\n{table}"
    );
}

/// Returns a page with a block for each pair of a name and a first line.
fn page(parts: &[(&str, &str)]) -> Vec<Block> {
    let text: Vec<String> = parts
        .iter()
        .map(|(name, line)| {
            format!("<!-- {name}: begin -->\n{line}\n\n| x |\n<!-- {name}: end -->")
        })
        .collect();
    blocks(&text.join("\ntext\n"))
}

#[test]
fn a_block_without_commit_command_or_date_is_a_fault() {
    let good = "*Taken 2026-11-28, commit 0123456789ab, by `make measure-blk`.*";
    assert!(faults(&page(&[("a", good)]), &[]).is_empty());
    for (line, why) in [
        ("| a | table |", "its first line"),
        (
            "*Taken today, commit 0123456789ab, by `make x`.*",
            "its date",
        ),
        (
            "*Taken 2026-11-28, commit 0123456789ab with changes, by `make x`.*",
            "its commit",
        ),
        (
            "*Taken 2026-11-28, commit unknown, by `make x`.*",
            "its commit",
        ),
        (
            "*Taken 2026-11-28, commit 0123456789ab, by ``.*",
            "its command",
        ),
    ] {
        let found = faults(&page(&[("a", line)]), &[]);
        assert!(
            found.len() == 1 && found[0].contains(why),
            "{line}: {found:?}"
        );
    }
    assert!(page(&[("a", "*Not taken since the code changed: run `make x`.*")]).is_empty());
    assert_eq!(faults(&page(&[("a", good), ("a", good)]), &[]).len(), 2);
}

#[test]
fn blocks_that_are_compared_are_of_one_commit() {
    let of = |commit: &str| format!("*Taken 2026-11-28, commit {commit}, by `make measure`.*");
    let (one, other) = (of("0123456789ab"), of("ba9876543210"));
    let group: &[&[&str]] = &[&["a", "b"]];
    let same = page(&[("a", &one), ("b", &one), ("c", &other)]);
    assert!(faults(&same, group).is_empty());
    let apart = page(&[("a", &one), ("b", &other)]);
    assert_eq!(
        faults(&apart, group),
        ["compared with each other: a of 0123456789ab, b of ba9876543210"]
    );
    assert!(divided(&["a", "b", "c"], group).is_empty());
    assert!(divided(&["c"], group).is_empty());
    assert_eq!(divided(&["c", "b"], group), ["not all are here: a, b"]);
    // One that was taken again beside one of unknown origin: that, and that they differ.
    let half = page(&[("a", &one), ("b", "| old |")]);
    assert_eq!(faults(&half, group).len(), 2);
}
