//! Tests of the arguments that are refused before a guest runs, and of the lists.

use crate::{TIMEOUT, compare, output, refused};
use std::time::Instant;

#[test]
fn nothing_runs_where_the_command_line_is_wrong() {
    refused(
        &output(&["nonsense"]),
        125,
        &["`nonsense`", "page-fault/4k", "memhog"],
    );
    refused(
        &output(&["idle", "--icount", "-c", "2"]),
        125,
        &["-c 2", "--icount"],
    );
    refused(&output(&["idle", "--rounds", "0"]), 125, &["0"]);
    for text in ["0", "-1", "5x", "366d"] {
        let words = ["--timeout", text, "--", "sh"];
        refused(&output(&words), 125, &["--timeout", &format!("`{text}`")]);
    }
    for (arguments, words) in [
        (&["idle", "idle"][..], &["idle is named twice"][..]),
        (
            &["page-fault", "page-fault/4k"],
            &["page-fault/4k is named twice"],
        ),
        (&["--give-back", "off,off", "idle"], &["off twice"]),
        (
            &["-m", "1G", "-m", "2G", "idle"],
            &["--memory", "multiple times"],
        ),
        (
            &["--variant", "a: -m 1G", "--variant", "A:", "--", "sh"],
            &["two columns"],
        ),
        (
            &[
                "--variant",
                "linux:",
                "--linux",
                "none",
                "--variant",
                "Ebb:",
                "idle",
            ],
            &["`Ebb`"],
        ),
        (
            &["--variant", "a: -m 1G -m 2G", "--", "sh"],
            &["--memory is given twice"],
        ),
        (&["--variant", "no colon", "--", "sh"], &["NAME: OPTIONS"]),
        (
            &["--linux", "none", "--variant", "a: --no-such 1", "--", "sh"],
            &["a: ", "--no-such"],
        ),
        (
            &["--linux", "none", "--", "/nonexistent/mine"],
            &["/nonexistent/mine"],
        ),
        (&["idle", "--", "sh"], &["PROGRAM"]),
        (
            &["--html", "/nonexistent/x.html", "--", "sh"],
            &["/nonexistent/x.html"],
        ),
        (
            &["--linux", "none", "--csv", "/nonexistent/f.csv", "--", "sh"],
            &["/nonexistent/f.csv"],
        ),
    ] {
        refused(&output(arguments), 125, words);
    }
    refused(
        &output(&["--give-back", "maybe"]),
        125,
        &["maybe", "hinting"],
    );
    refused(&output(&["idle", "--from", "x.json"]), 125, &["--from"]);
    refused(
        &compare(&["idle", "--linux", "none"])
            .env("EBB_WORKLOADS", "/nonexistent/workloads")
            .output()
            .expect("ebb starts"),
        125,
        &["/nonexistent/workloads", "EBB_WORKLOADS"],
    );
    refused(
        &output(&["idle", "--linux", "/nonexistent/vmlinuz"]),
        125,
        &["/nonexistent/vmlinuz"],
    );
    refused(
        &output(&["idle", "--linux", "/proc/self/exe"]),
        125,
        &["cannot be booted", "--linux /boot/vmlinuz-RELEASE"],
    );
}

#[test]
fn files_that_cannot_be_written_are_found_before_anything_runs() {
    let begun = Instant::now();
    for (option, path) in [
        ("--json", "/nonexistent/report.json"),
        ("--html", "/proc/report.html"),
        ("--json", "/"),
    ] {
        refused(
            &output(&["idle", "--linux", "none", option, path]),
            125,
            &[path],
        );
    }
    assert!(begun.elapsed() < TIMEOUT);
}

#[test]
fn the_list_names_every_experiment() {
    let listed = output(&["--list"]);
    assert!(listed.status.success());
    let text = String::from_utf8(listed.stdout).expect("it is text");
    for name in [
        "idle",
        "memhog",
        "page-fault/4k",
        "page-fault/thp",
        "page-fault/file",
        "messaging",
        "stream",
        "hugetlb/kept",
        "hugetlb/given-up",
        "hugetlb-32g/1g",
        "heap/fresh",
        "huge-latency/fragmented",
        "pin/hugetlb",
        "swap-pressure",
        "boots",
    ] {
        assert!(text.contains(name), "{name} is missing in\n{text}");
    }
}
