//! docs/abi.md and the table of calls say the same.
//!
//! A row of the page names calls in its first column and says their state in its second, which
//! begins with one of the words that [`State`] has.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What the page says of a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// It works, or some of it does.
    Works,
    /// It gives an error, always, which the row names.
    Refused,
    /// It is `ENOSYS`.
    Absent,
}

/// What the table does with a call.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Handler {
    /// It looks at the arguments.
    Real,
    /// It is nothing but this error.
    Error(String),
}

fn read(path: &str) -> String {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(kernel.join(path)).expect(path)
}

/// Returns the path of the source of `module`, which is a file or a folder.
fn file_of(module: &str) -> String {
    let file = format!("src/syscall/{module}.rs");
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR"));
    if kernel.join(&file).exists() {
        file
    } else {
        format!("src/syscall/{module}/mod.rs")
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Names in backticks that can be calls: flags have capitals, paths have slashes.
fn calls_in(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|t| is_name(t))
}

/// A row's state by its first word.
fn state_of(cell: &str) -> Option<State> {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    [
        ("works", State::Works),
        ("partly", State::Works),
        ("refused", State::Refused),
        ("`ENOSYS`", State::Absent),
    ]
    .into_iter()
    .find(|(word, _)| cell.strip_prefix(word).is_some_and(ends))
    .map(|(_, state)| state)
}

/// Each call of the page with its state and the text beside it, and what is wrong with its rows.
fn page(text: &str) -> (BTreeMap<String, (State, String)>, Vec<String>) {
    let (mut named, mut wrong) = (BTreeMap::new(), Vec::new());
    for line in text.lines() {
        let row = line.strip_prefix("| ").and_then(|l| l.strip_suffix(" |"));
        let Some((left, right)) = row.and_then(|row| row.split_once(" | ")) else {
            continue;
        };
        for call in calls_in(left) {
            match state_of(right) {
                None => wrong.push(format!("{call}: no state begins with: {right}")),
                Some(state) => {
                    let before = named.insert(String::from(call), (state, String::from(right)));
                    if before.is_some() {
                        wrong.push(format!("{call}: stands in two rows"));
                    }
                }
            }
        }
    }
    (named, wrong)
}

/// What a function of a handlers' source is.
fn handler(source: &str, function: &str) -> Option<Handler> {
    let inside = source.split(&format!("\npub fn {function}(")).nth(1)?;
    let body = inside.split_once("{\n")?.1.split_once("\n}")?.0.trim();
    let error = body
        .strip_prefix("Err(Errno::")
        .and_then(|rest| rest.strip_suffix(')'))
        .filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric()));
    Some(match error {
        Some(name) => Handler::Error(String::from(name)),
        None => Handler::Real,
    })
}

/// The calls that the table knows.
fn table() -> BTreeMap<String, Handler> {
    let mut sources = BTreeMap::new();
    let text = read("src/syscall/table.rs");
    let mut known = BTreeMap::new();
    for arm in text.split("nr::__NR_").skip(1) {
        let (call, rest) = arm.split_once(" => ").expect("an arm");
        let path = rest.split('(').next().expect("a handler");
        let (module, function) = path.split_once("::").expect("a handler's module");
        let source = sources
            .entry(module)
            .or_insert_with(|| read(&file_of(module)));
        let handler = handler(source, function).expect(path);
        assert!(is_name(call), "{call}: more than one call in an arm");
        assert!(
            known.insert(String::from(call), handler).is_none(),
            "{call}"
        );
    }
    assert!(known.len() > 200, "the table was not found");
    known
}

/// Every difference between the page and the table.
fn differences(page_text: &str, table: &BTreeMap<String, Handler>) -> Vec<String> {
    let (named, mut wrong) = page(page_text);
    for call in table.keys().filter(|call| !named.contains_key(*call)) {
        wrong.push(format!("{call}: in the table, and in no row of the page"));
    }
    for (call, (state, beside)) in &named {
        let handler = table.get(call);
        let absent = handler.is_none_or(|h| *h == Handler::Error(String::from("ENOSYS")));
        match state {
            State::Absent if !absent => wrong.push(format!("{call}: the table has it")),
            State::Works | State::Refused if absent => {
                wrong.push(format!("{call}: gives ENOSYS, which the page does not say"));
            }
            State::Absent => {}
            State::Works => {
                if let Some(Handler::Error(error)) = handler {
                    wrong.push(format!("{call}: never gives anything but {error}"));
                }
            }
            State::Refused => match handler {
                Some(Handler::Error(error)) if !beside.contains(&format!("`{error}`")) => {
                    wrong.push(format!("{call}: gives {error}, which its row does not say"));
                }
                _ => {}
            },
        }
    }
    wrong
}

#[test]
fn the_page_and_the_table_of_calls_agree() {
    let wrong = differences(&read("../docs/abi.md"), &table());
    assert!(wrong.is_empty(), "docs/abi.md:\n{}", wrong.join("\n"));
}

#[test]
fn each_kind_of_difference_is_found() {
    let table: BTreeMap<String, Handler> = [
        ("read", Handler::Real),
        ("mount", Handler::Error(String::from("EPERM"))),
        ("rseq", Handler::Error(String::from("ENOSYS"))),
    ]
    .map(|(call, handler)| (String::from(call), handler))
    .into();
    let right = ["| `read` | works |", "| `mount` | refused: `EPERM` |"];
    let found = |rows: &[&str]| differences(&rows.join("\n"), &table).len();
    let [read, mount] = right;
    assert_eq!(found(&[read, mount, "| `rseq` `bpf` | `ENOSYS` |"]), 0);
    assert_eq!(found(&[read, mount]), 1, "a row is gone");
    for row in [
        "| `rseq` | works |",
        "| `rseq` | `ENOSYS` |\n| `bpf` | partly |",
        "| `rseq` `read` | `ENOSYS` |",
        "| `rseq` | no |",
    ] {
        assert!(found(&[read, mount, row]) > 0, "{row}");
    }
    let absent = "| `rseq` | `ENOSYS` |";
    assert_eq!(found(&[read, "| `mount` | works |", absent]), 1);
    assert_eq!(found(&[read, "| `mount` | refused: `EACCES` |", absent]), 1);
}
