//! Tests of huge pages: that a program gets them when it asks, and the kernel's counters for them.
//! The test `alike` compares the content with a native run.

use crate::scratch::Scratch;
use crate::{ebb, native, programs};

/// Returns the program's figures, each with the name of the step before.
fn figures(options: &[&str], how: &str) -> Vec<(String, String)> {
    let program = programs::text(programs::path("huge"));
    let outcome = ebb::run(300, options, &[program.as_str(), how]);
    let out = outcome.expect(0).out();
    assert!(!out.contains(": NO"), "{out}");
    out.lines()
        .filter(|line| line.contains("in huge pages"))
        .filter_map(|line| line.split_once(": "))
        .map(|(step, figures)| (step.to_owned(), figures.to_owned()))
        .collect()
}

#[track_caller]
fn shows(figures: &[(String, String)], step: &str, expected: &str) {
    let (_, found) = figures
        .iter()
        .find(|(name, _)| name == step)
        .unwrap_or_else(|| panic!("no step {step:?} in {figures:?}"));
    assert_eq!(found, expected, "after {step:?}");
}

#[test]
fn each_step_keeps_the_huge_pages_that_it_can() {
    for cpus in ["1", "4"] {
        let all = figures(&["-m", "256M", "-c", cpus], "figures");
        let line = |kib: u64, machine: u64, faults: u64, parted: u64, split: u64| {
            format!(
                "{kib} kB in huge pages, {machine} kB in the machine, {faults} faults, 0 without, \
                 {parted} blocks parted, {split} entries split"
            )
        };
        for (step, expected) in [
            ("written", line(8192, 8192, 4, 0, 0)),
            ("unmapped", line(0, 0, 4, 0, 0)),
            ("two of three cut", line(2048, 2048, 7, 2, 2)),
            ("a part dropped", line(2048, 2048, 9, 3, 3)),
            ("one read-only", line(4096, 4096, 12, 3, 3)),
            ("as before", line(4096, 4096, 12, 3, 3)),
            ("a page read-only", line(2048, 2048, 12, 4, 4)),
            ("moved whole", line(4096, 4096, 14, 4, 4)),
            ("moved askew", line(2048, 2048, 14, 5, 5)),
            ("a part moved", line(0, 0, 14, 6, 6)),
            ("shared", line(6144, 6144, 17, 6, 6)),
            ("written by the child", line(4096, 4096, 17, 7, 7)),
            ("after the children", line(6144, 4096, 17, 7, 7)),
            ("one declined", line(2048, 2048, 19, 9, 11)),
            ("one too small", line(2048, 2048, 20, 9, 11)),
            ("none at all", line(0, 0, 20, 9, 11)),
            ("in the end", line(0, 0, 21, 9, 11)),
        ] {
            shows(&all, step, &expected);
        }
    }
}

#[test]
fn who_gets_them_is_a_matter_of_policy() {
    let none = "0 kB in huge pages, 0 kB in the machine, 0 faults, 0 without, 0 blocks parted, \
                0 entries split";
    // All four blocks were read before the rest was written.
    let all = "8192 kB in huge pages, 8192 kB in the machine, 4 faults, 0 without, \
               0 blocks parted, 0 entries split";
    for (append, how, expected) in [
        (None, "plain", all),
        (Some("transparent_hugepage=madvise"), "plain", none),
        (Some("transparent_hugepage=madvise"), "figures", all),
        (Some("transparent_hugepage=never"), "figures", none),
    ] {
        let mut options = vec!["-m", "256M"];
        if let Some(word) = append {
            options.extend(["--append", word]);
        }
        shows(&figures(&options, how), "written", expected);
    }
}

#[test]
fn where_no_block_is_left_pages_do() {
    let program = programs::text(programs::path("huge"));
    for memory in ["48M", "200M"] {
        let outcome = ebb::run(300, &["-m", memory, "-c", "2"], &[program.as_str(), "full"]);
        let out = outcome.expect(0).out();
        assert!(
            out.contains("parts > 0: yes") && !out.contains(": NO"),
            "{memory}: {out}"
        );
    }
}

#[test]
#[ignore = "long: make test-long"]
fn random_changes_are_as_a_model_says() {
    let program = programs::text(programs::path("huge"));
    for (seed, cpus) in [("21", "1"), ("22", "2"), ("23", "4")] {
        let options = ["-m", "128M", "-c", cpus];
        let outcome = ebb::run(600, &options, &[program.as_str(), seed, "800"]);
        let out = outcome.expect(0).out();
        assert!(out.contains("are as the model says"), "seed {seed}: {out}");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn of_a_page_that_was_not_requested_stays_what_is_used() {
    let program = programs::text(programs::path("trial"));
    for cpus in ["1", "4"] {
        let outcome = ebb::run(300, &["-m", "256M", "-c", cpus], &[program.as_str()]);
        let out = outcome.expect(0).out();
        assert!(!out.contains(": NO"), "{cpus} CPUs: {out}");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn nothing_is_lost_of_pages_on_trial() {
    let program = programs::text(programs::path("trial_storm"));
    for (cpus, threads, seed) in [("2", "2", "1"), ("4", "4", "2"), ("4", "8", "3")] {
        let options = ["-m", "256M", "-c", cpus];
        let outcome = ebb::run(600, &options, &[program.as_str(), threads, "8", seed]);
        let out = outcome.expect(0).out();
        assert!(
            !out.contains(": NO"),
            "{cpus} CPUs, {threads} threads: {out}"
        );
    }
}

#[test]
fn calls_that_end_within_a_page_on_trial_end() {
    let program = programs::path("trial_edges");
    let expected = native::run(program, &[], None);
    for cpus in ["1", "2"] {
        let outcome = ebb::run(300, &["-m", "256M", "-c", cpus], &[program]);
        assert_eq!(outcome.expect(0).stdout, expected.stdout, "{cpus} CPUs");
    }
}

/// Asserts that Ebb gives the same answers as a stock Linux, which uses no huge pages in a guest of
/// less than 512 MiB.
#[track_caller]
fn is_as_on_linux(program: &str) {
    let program = programs::text(programs::path(program));
    let said = |options: &[&str]| {
        let outcome = ebb::run(600, options, &[program.as_str()]);
        outcome.expect(0).out()
    };
    let linux = ebb::linux(600, &["-m", "1G", "-c", "2"], &[&program], |said| {
        !said.contains(": NO")
    });
    for cpus in ["1", "4"] {
        assert_eq!(said(&["-m", "256M", "-c", cpus]), linux, "{cpus} CPUs");
    }
}

#[test]
fn pages_are_joined_as_on_linux() {
    is_as_on_linux("collapse");
}

#[test]
#[ignore = "long: make test-long"]
fn pages_are_joined_by_and_by_as_on_linux() {
    is_as_on_linux("khugepaged");
}

#[test]
#[ignore = "long: make test-long"]
fn nothing_is_lost_of_pages_that_are_joined() {
    let program = programs::text(programs::path("collapse_storm"));
    for (cpus, threads, seed) in [("1", "2", "1"), ("4", "4", "2"), ("4", "6", "3")] {
        let options = ["-m", "256M", "-c", cpus];
        let outcome = ebb::run(600, &options, &[program.as_str(), threads, "8", seed]);
        let out = outcome.expect(0).out();
        assert!(
            !out.contains(": NO") && !out.contains("fails"),
            "{cpus} CPUs, {threads} threads: {out}"
        );
    }
}

#[test]
#[ignore = "long: make test-long"]
fn shared_memory_has_them_as_on_linux() {
    is_as_on_linux("shmem_huge");
}

#[test]
#[ignore = "long: make test-long"]
fn what_files_hold_behind_their_ends_is_given_up() {
    is_as_on_linux("shmem_tails");
}

#[test]
#[ignore = "long: make test-long"]
fn what_was_only_read_is_zero_as_on_linux() {
    is_as_on_linux("zero_huge");
}

#[test]
fn the_block_of_zeros_is_there_while_it_is_mapped() {
    let program = programs::text(programs::path("zero_huge"));
    let outcome = ebb::run(
        300,
        &["-m", "256M", "-c", "2"],
        &[program.as_str(), "figures"],
    );
    let out = outcome.expect(0).out();
    for line in [
        "at first: 0 made",
        "read: 1 made",
        "more read: 1 made",
        "unmapped: 1 made",
        "once more: 2 made",
    ] {
        assert!(out.lines().any(|said| said == line), "{line}: {out}");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn nothing_is_lost_of_huge_pages_of_files() {
    let program = programs::text(programs::path("shmem_huge_storm"));
    for (cpus, threads, seed, kind) in [("2", "4", "1", "memfd"), ("4", "3", "2", "tmpfs")] {
        let options = ["-m", "256M", "-c", cpus];
        let outcome = ebb::run(600, &options, &[program.as_str(), threads, "8", seed, kind]);
        let out = outcome.expect(0).out();
        assert!(
            !out.contains(": NO") && !out.contains("fails"),
            "{cpus} CPUs, {threads} threads: {out}"
        );
    }
}

/// Shows that collapsed pages leave whole free blocks for the next collapse, so the host provides
/// no more memory.
#[test]
fn joining_needs_no_more_memory_of_the_host() {
    let scratch = Scratch::new("joined");
    let record = scratch.path("record.json");
    let program = programs::text(programs::path("joined_within"));
    for cpus in ["1", "4"] {
        let options = ["-m", "512M", "-c", cpus, "--give-back", "off", "--record"];
        let options = [&options[..], &[&record]].concat();
        ebb::run(600, &options, &[program.as_str()]).expect(0);
        let text = std::fs::read_to_string(&record).expect("a record");
        let peak = text.split_once("\"peak_resident\":").expect("a peak").1;
        let digits = peak.split(|byte: char| !byte.is_ascii_digit()).next();
        let mebibytes = digits
            .and_then(|text| text.parse::<u64>().ok())
            .expect("a number")
            >> 20;
        // 128 MiB are collapsed, and the kernel has some memory. It would be twice as much if each
        // page were collapsed into another block.
        assert!(
            (128..170).contains(&mebibytes),
            "{cpus} CPUs: {mebibytes} MiB"
        );
    }
}
