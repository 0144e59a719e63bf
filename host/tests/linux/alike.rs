//! Tests that every program does the same in a guest as on the host.

use crate::suite::{self, Case, Deeds};
use crate::{difference, native, programs};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// C programs whose output is the same natively and in a guest. The other programs have tests of
/// their own.
const C: [&str; 36] = [
    "process",
    "execute",
    "arguments",
    "pipes",
    "messages",
    "threads",
    "futex",
    "signals",
    "bad_frames",
    "shared",
    "shm",
    "replacing",
    "sem",
    "msg",
    "mqueue",
    "filefault",
    "filemap",
    "seals",
    "growth",
    "pinned",
    "refused",
    "huge",
    "locking",
    "memory",
    "polling",
    "clocks",
    "files",
    "locks",
    "lock_storm",
    "identity",
    "vectors",
    "library",
    "proc",
    "fork_order",
    "fork_storm",
    "thread_storm",
];
const RUST: [&str; 3] = ["rust-threads", "rust-processes", "rust-files"];
const SHELL: [&str; 3] = ["text", "shell", "files"];

/// Options of the guests in which every program runs.
const TWO_CPUS: &[&str] = &["-m", "512M", "-c", "2"];
const ONE_CPU_Q35: &[&str] = &["-m", "512M", "-c", "1", "--machine", "q35"];
const FOUR_CPUS: &[&str] = &["-m", "512M", "-c", "4", "--reporting-order", "0"];

fn cases() -> Vec<Case> {
    let program = |name: &&str| Case {
        name: (*name).to_owned(),
        program: programs::path(name).to_owned(),
        words: Vec::new(),
        script: None,
    };
    let script = |name: &&str| Case {
        name: format!("sh-{name}"),
        program: native::busybox(),
        words: vec!["sh".to_owned(), "script.sh".to_owned()],
        script: Some(programs::sources().join(format!("sh/{name}.sh"))),
    };
    // For development: EBB_TEST_CASES="futex,memory" runs only those cases.
    let only = std::env::var("EBB_TEST_CASES").ok();
    let wanted = |case: &Case| {
        only.as_ref()
            .is_none_or(|only| only.split(',').any(|name| name == case.name))
    };
    let all = C
        .iter()
        .chain(&RUST)
        .map(program)
        .chain(SHELL.iter().map(script));
    all.filter(wanted).collect()
}

/// Returns the result of each case on the host.
fn expected() -> &'static Deeds {
    static EXPECTED: OnceLock<Deeds> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        let run = |case: &Case| {
            let words: Vec<&str> = case.words.iter().map(String::as_str).collect();
            native::run(&case.program, &words, case.script.as_deref())
        };
        cases()
            .iter()
            .map(|case| (case.name.clone(), Ok(run(case))))
            .collect()
    })
}

/// Returns one line or more for each case that differs.
fn differences(options: &[&str]) -> BTreeMap<String, String> {
    let found = suite::run(options, &cases());
    let mut all = BTreeMap::new();
    for (name, expected) in expected() {
        let Ok(expected) = expected else { continue };
        let mut text = String::new();
        match &found[name] {
            Err(why) => text.push_str(why),
            Ok(found) => {
                if found.status != expected.status {
                    let (want, got) = (expected.status, found.status);
                    text.push_str(&format!("status {got} instead of {want}\n"));
                }
                for (stream, expected, found) in [
                    ("stdout", &expected.stdout, &found.stdout),
                    ("stderr", &expected.stderr, &found.stderr),
                ] {
                    if let Some(difference) = difference::between(expected, found) {
                        text.push_str(&format!("{stream} (- native, + guest):\n{difference}"));
                    }
                }
            }
        }
        if !text.is_empty() {
            all.insert(name.clone(), text);
        }
    }
    all
}

#[track_caller]
fn check(options: &[&str]) {
    let differences = differences(options);
    let names: Vec<_> = differences.keys().cloned().collect();
    let text: String = differences
        .iter()
        .map(|(n, d)| format!("=== {n}\n{d}\n"))
        .collect();
    assert!(
        differences.is_empty(),
        "{} of {} programs differ in a guest ({}): {}\n{text}",
        differences.len(),
        expected().len(),
        options.join(" "),
        names.join(" ")
    );
}

#[test]
fn on_two_cpus() {
    check(TWO_CPUS);
}

#[test]
#[ignore = "long: make test-long"]
fn on_one_cpu_of_a_q35() {
    check(ONE_CPU_Q35);
}

#[test]
#[ignore = "long: make test-long"]
fn on_four_cpus_with_the_finest_reports() {
    check(FOUR_CPUS);
}
