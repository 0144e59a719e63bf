//! Tests of `/proc/pressure`: totals grow where tasks stall, and triggers tell of it.

use crate::{ebb, programs};

#[track_caller]
fn all_holds(options: &[&str], part: &str) {
    let program = programs::text(programs::path("pressure"));
    let outcome = ebb::run(900, options, &[program, part.to_owned()]);
    let out = outcome.expect(0).out();
    assert!(out.ends_with("done\n") && !out.contains("NO"), "{out}");
}

#[test]
fn files_and_triggers_have_linuxs_form() {
    all_holds(&["-m", "128M", "-c", "2"], "forms");
}

#[test]
fn tasks_that_wait_for_a_cpu_are_counted_and_told_of() {
    all_holds(&["-m", "128M", "-c", "2"], "cpu");
}

#[test]
fn a_guest_at_rest_has_no_pressure() {
    all_holds(&["-m", "128M", "-c", "2"], "rest");
}

#[test]
fn a_guest_without_free_memory_stalls() {
    all_holds(&["-m", "192M", "-c", "2"], "reclaim");
}

#[test]
fn faults_that_wait_for_compaction_stall() {
    all_holds(&["-m", "192M", "-c", "2"], "compaction");
}

#[test]
fn a_boot_word_switches_pressure_off() {
    let options = |word| ["-m", "128M", "--append", word];
    let list = ["sh", "-c", "ls /proc/pressure 2> /dev/null | sort"];
    for word in ["psi=0", "psi=off"] {
        let outcome = ebb::run(300, &options(word), &list);
        assert_eq!(outcome.expect(0).out(), "", "{word}");
    }
    let outcome = ebb::run(300, &options("psi=1"), &list);
    assert_eq!(outcome.expect(0).out(), "cpu\nio\nmemory\n");
}
