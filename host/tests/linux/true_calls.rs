//! Tests that system calls on Ebb give the same results as on a stock Linux: errors, wake-ups, and
//! counters.

use crate::suite::{self, Case, Deeds};
use crate::{difference, ebb, programs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Programs that print the result of each call. Programs of the same class are next to each other,
/// so that few guests boot.
const PROGRAMS: &[&str] = &[
    "true_aio",
    "true_continues",
    "true_cores",
    "true_datagrams",
    "true_ended",
    "true_errors",
    "true_handles",
    "true_inotify",
    "true_iret",
    "true_knobs",
    "true_lists",
    "true_loaders",
    "true_log",
    "true_loopback",
    "true_many",
    "true_memory",
    "true_mutexes",
    "true_options",
    "true_pidfds",
    "true_policy",
    "true_ping",
    "true_proc",
    "true_proc_net",
    "true_processes",
    "true_programs",
    "true_ptrace",
    "true_rseq",
    "true_scheduling",
    "true_seccomp",
    "true_sigio",
    "true_signals",
    "true_splices",
    "true_tasks",
    "true_tty",
    "true_unix",
    "true_users",
    "true_vdso",
    "true_vectors",
    "true_waits",
    "true_walks",
    "true_xattrs",
    // Sets the wall clock.
    "true_clock",
];

fn cases() -> Vec<Case> {
    let case = |name: &&str| Case {
        name: (*name).to_owned(),
        program: programs::path(name).to_owned(),
        words: Vec::new(),
        script: None,
    };
    // For development: EBB_TEST_CASES="true_log,true_unix" runs only those.
    let only = std::env::var("EBB_TEST_CASES").ok();
    let wanted = |name: &&&str| {
        only.as_ref()
            .is_none_or(|only| only.split(',').any(|one| one == **name))
    };
    PROGRAMS.iter().filter(wanted).map(case).collect()
}

/// Returns the differences between two runs, by program.
fn differences(linux: &Deeds, ebb: &Deeds) -> String {
    let mut text = String::new();
    for (name, linux) in linux {
        match (linux, &ebb[name]) {
            (Err(why), _) => text.push_str(&format!("=== {name} on Linux: {why}\n")),
            (_, Err(why)) => text.push_str(&format!("=== {name}: {why}\n")),
            (Ok(linux), Ok(ebb)) => {
                assert!(
                    !linux.stdout.is_empty(),
                    "{name} says nothing on Linux, status {}",
                    linux.status
                );
                // A program ends with one of these if it cannot go on (say.h, pool.h).
                if let status @ 97..=99 = linux.status {
                    text.push_str(&format!("=== {name} ends early on Linux: {status}\n"));
                }
                if linux.status != ebb.status {
                    let (want, got) = (linux.status, ebb.status);
                    text.push_str(&format!("=== {name}: status {got} instead of {want}\n"));
                }
                if let Some(lines) = difference::between(&linux.stdout, &ebb.stdout) {
                    text.push_str(&format!("=== {name} (- Linux, + Ebb):\n{lines}"));
                }
            }
        }
    }
    text
}

#[test]
#[ignore = "long: make test-long"]
fn are_as_on_linux() {
    let cases = cases();
    // A guest in another mode gives memory if the host is short of it.
    let keep = ["--give-back", "off"];
    let linux = ["-m", "1G", "-c", "2", "--kernel", "linux", keep[0], keep[1]];
    let (linux, ebbs) = std::thread::scope(|scope| {
        let linux = scope.spawn(|| suite::run(&linux, &cases));
        let ebbs = ["1", "4"].map(|cpus| {
            (
                cpus,
                suite::run(&["-m", "512M", "-c", cpus, keep[0], keep[1]], &cases),
            )
        });
        (linux.join().expect("Linux ran them"), ebbs)
    });
    for (cpus, ebb) in ebbs {
        let text = differences(&linux, &ebb);
        assert!(text.is_empty(), "{cpus} CPUs:\n{text}");
    }
}

#[test]
fn a_fault_without_end_ends() {
    let program = programs::text(programs::path("return_to_user"));
    let out = ebb::run(600, &["-m", "256M", "-c", "1"], &[&program])
        .expect(0)
        .out();
    // On a CPU that reads the stack with the wrong rights, or on one that does not.
    let ends = [
        "goes on\n",
        "was ended by signal 11\n",
        "handled signal 11\n",
    ];
    let lines: Vec<&str> = out.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 2, "{out}");
    for line in lines {
        assert!(ends.contains(&line), "{out}");
    }
}

/// Returns the names and numbers of all calls, from the header of the C library.
fn numbers() -> BTreeMap<String, u32> {
    let header = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
    let text = std::fs::read_to_string(header).expect("apt-get install linux-libc-dev");
    text.lines()
        .filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '))
        .filter_map(|(name, number)| Some((name.to_owned(), number.trim().parse().ok()?)))
        .collect()
}

/// Returns each call of docs/abi.md, and whether its row says that the kernel lacks it.
fn page() -> BTreeMap<String, bool> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/abi.md");
    let text = std::fs::read_to_string(path).expect("the page is part of the repository");
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        let Some((names, state)) = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split_once(" | "))
        else {
            continue;
        };
        for name in names.split('`').step_by(2) {
            calls.insert(name.to_owned(), state.starts_with("`ENOSYS`"));
        }
    }
    calls
}

#[test]
fn are_there_where_the_page_says_so() {
    let (numbers, page) = (numbers(), page());
    let words: Vec<String> = numbers.iter().map(|(n, i)| format!("{n}={i}")).collect();
    let mut command = vec![programs::text(programs::path("call_numbers"))];
    command.extend(words);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let out = ebb::run(600, &["-m", "256M", "-c", "1"], &command)
        .expect(0)
        .out();
    assert!(out.ends_with("done\n"), "{out}");
    let absent: BTreeSet<&str> = out.lines().filter(|line| *line != "done").collect();
    let wrong: Vec<String> = numbers
        .keys()
        .filter_map(|name| {
            let found = absent.contains(name.as_str());
            // A call without a row counts as missing.
            let said = page.get(name).copied().unwrap_or(true);
            (found != said).then(|| {
                let (has, says) = if found {
                    ("lacks", "there")
                } else {
                    ("has", "missing")
                };
                format!("{name}: the kernel {has} it, the page says that it is {says}")
            })
        })
        .collect();
    assert!(wrong.is_empty(), "docs/abi.md:\n{}", wrong.join("\n"));
}
