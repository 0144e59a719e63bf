//! Checks that only the files below write to ebb's terminal.

use std::fs;
use std::path::Path;

/// Code that writes to stdout or stderr, or names them.
const WAYS: [&str; 7] = [
    "println!", "print!(", "dbg!(", "stdout()", "stderr()", "Stderr", "Stdout",
];
/// Calls that only query a stream.
const QUESTIONS: [&str; 4] = ["isatty(", "tcgetwinsize(", "tcgetpgrp(", "fstat("];
/// Files that may write, and why a terminal is safe there.
const SINKS: [(&str, &str); 4] = [
    ("text/stderr.rs", "makes all printable"),
    ("text/raw.rs", "sets modes, and writes nothing"),
    ("stdout.rs", "makes all printable"),
    ("streams/output.rs", "the program's own streams"),
];

fn look(folder: &Path, root: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            look(&path, root, found);
            continue;
        }
        let name = path
            .strip_prefix(root)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let is_test = name.contains("test");
        if is_test || SINKS.iter().any(|(sink, _)| *sink == name) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let writes = WAYS.iter().any(|way| line.contains(way));
            let asks = QUESTIONS.iter().any(|question| line.contains(question));
            if writes && !asks && !is_prose(line) {
                found.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
}

/// Returns whether a line is a comment, or names a stream that is not this process's own.
fn is_prose(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("//")
        || ["OutputPort::", "Stdio", "ChildStd", "use_stderr()"]
            .iter()
            .any(|word| line.contains(word))
}

#[test]
fn only_sinks_write_to_the_terminal() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    look(root, root, &mut found);
    assert!(
        found.is_empty(),
        "these may write to the terminal what is not ebb's own; let `text::stderr`, `text::Terminal` or `stdout` do it:\n{}",
        found.join("\n")
    );
}
