//! Comparisons of real guests.

use crate::scratch::Scratch;
use crate::{TIMEOUT, compare, output, read, refused, sample};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn guests_that_take_turns_are_measured_round_by_round() {
    let scratch = Scratch::new("turns");
    let json = scratch.path("r.json");
    let made = output(&[
        "page-fault/4k",
        "messaging",
        "--linux",
        "none",
        "--give-back",
        "reporting",
        "--rounds",
        "2",
        "-c",
        "1",
        "-m",
        "256M",
        "--accel",
        "tcg",
        "--json",
        &json,
    ]);
    let said = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(0), "{said}");
    let report = read(&json);
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(
        runs.len(),
        3,
        "a boot of each: messaging has two experiments"
    );
    for run in runs {
        let turns = run["turns"].as_array().expect("what each round took");
        assert_eq!(turns.len(), 2, "{turns:?}");
        for turn in turns {
            assert!(turn["wall_s"].as_f64() > Some(0.0), "{turn}");
            assert!(turn["qemu_cpu_s"].as_f64() > Some(0.0), "{turn}");
        }
    }
    let rates = report["table"].as_array().expect("rows").iter();
    let row = rates
        .clone()
        .find(|row| row["metric"] == "faults_per_second_per_task");
    assert_eq!(row.expect("the rate")["cells"][0]["rounds"], 2);
}

/// Two comparisons of counted runs have the same figures, also on a busy machine.
#[test]
fn counted_figures_are_the_same_in_every_comparison() {
    let scratch = Scratch::new("counted");
    let json = scratch.path("r.json");
    let table = || {
        let made = output(&[
            "memhog",
            "pin/thp",
            "--icount",
            "--linux",
            "none",
            "--give-back",
            "reporting",
            "--rounds",
            "2",
            "-m",
            "256M",
            "--json",
            &json,
        ]);
        let said = String::from_utf8_lossy(&made.stderr);
        assert_eq!(made.status.code(), Some(0), "{said}");
        read(&json)["table"].clone()
    };
    let first = table();
    // The guest reports memory only after it has freed it for the first time.
    assert!(first.to_string().contains("release_again_s"), "{first}");
    assert!(!first.to_string().contains("release_s"), "{first}");
    assert_eq!(table(), first);
}

/// In a counted `memhog` memory is reported while it is used again, in guests of both kernels. What
/// was measured before the first report has no figure.
#[test]
#[ignore = "long: make test-long"]
fn counted_figures_of_reporting_have_reports() {
    let scratch = Scratch::new("reports");
    let json = scratch.path("r.json");
    let mut words = vec!["memhog", "--icount", "--rounds", "1", "--json", &json];
    let mut guests = vec!["ebb", "linux"];
    if !has_linux() {
        words.extend(["--linux", "none"]);
        guests.pop();
    }
    let made = output(&words);
    let said = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(0), "{said}");
    let table = read(&json)["table"].clone();
    let rows = table.as_array().expect("rows");
    let cell = |row: &Value, guest: &str, mode: &str| -> Option<f64> {
        let mut cells = row["cells"].as_array().expect("cells").iter();
        let found = cells.find(|cell| cell["guest"] == guest && cell["give_back"] == mode);
        found.and_then(|cell| cell["median"].as_f64())
    };
    let reports = |row: &&Value| row["metric"] == "reports" && row["labels"]["use"] != "first";
    let reports: Vec<&Value> = rows.iter().filter(reports).collect();
    assert_eq!(reports.len(), 1, "{reports:#?}");
    for row in reports {
        for guest in &guests {
            assert!(cell(row, guest, "reporting") >= Some(1.0), "{row}");
        }
        assert_eq!(cell(row, "ebb", "off"), Some(0.0), "{row}");
    }
    let touch = rows.iter().find(|row| row["metric"] == "touch_s");
    let touch = touch.expect("of guests that give nothing back");
    assert_eq!(cell(touch, "ebb", "reporting"), None, "{touch}");
    assert!(cell(touch, "ebb", "off") > Some(0.0), "{touch}");
    let text = String::from_utf8_lossy(&made.stdout);
    assert!(text.contains("no report"), "{text}");
}

/// Returns whether Debian's kernel is available or can be fetched.
pub(crate) fn has_linux() -> bool {
    let words = ["run", "--kernel", "linux", "--print-qemu", "--", "true"];
    let asked = Command::new(env!("CARGO_BIN_EXE_ebb")).args(words).output();
    let found = asked.expect("ebb starts").status.success();
    if !found {
        eprintln!("SKIPPED, there is no stock kernel");
    }
    found
}

#[test]
#[ignore = "long: make test-long"]
fn the_pool_of_huge_pages_is_compared_on_both_kernels() {
    if !has_linux() {
        return;
    }
    let scratch = Scratch::new("pool");
    let json = scratch.path("r.json");
    let wanted = [
        ("hugetlb/kept", "allocate_page_ns"),
        ("hugetlb/given-up", "saved_kib"),
        ("hugetlb/each", "free_each_ns"),
        ("hugetlb/all", "pool_share"),
        ("hugetlb/fault", "beyond_clearing_ns"),
        ("hugetlb/fault-file", "fault_ns"),
        ("pin/hugetlb", "pin_page_ns"),
    ];
    let mut words: Vec<&str> = wanted.iter().map(|(experiment, _)| *experiment).collect();
    words.extend(["--icount", "--give-back", "reporting", "--rounds", "1"]);
    words.extend(["-m", "512M", "--json", &json]);
    let made = output(&words);
    let said = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(0), "{said}");
    let report = read(&json);
    for (experiment, metric) in wanted {
        let mut rows = report["table"].as_array().expect("rows").iter();
        let row = rows.find(|row| row["experiment"] == experiment && row["metric"] == metric);
        let row = row.unwrap_or_else(|| panic!("{experiment} has no {metric}"));
        let guests: Vec<&str> = row["cells"]
            .as_array()
            .expect("cells")
            .iter()
            .filter_map(|cell| cell["guest"].as_str())
            .collect();
        assert_eq!(guests, ["ebb", "linux"], "{row}");
    }
    // Only the Linux guest gets options about clearing pages and about page descriptors.
    for run in report["runs"].as_array().expect("runs") {
        let experiment = run["experiment"].as_str().expect("a name");
        let told = run["command"].to_string();
        let on_linux = run["guest"] == "linux";
        assert_eq!(told.contains("init_on_alloc=0"), on_linux, "{told}");
        let kept = on_linux && experiment == "hugetlb/kept";
        assert_eq!(told.contains("hugetlb_free_vmemmap=off"), kept, "{told}");
    }
}

#[test]
fn a_report_that_was_cut_short_says_so() {
    let scratch = Scratch::new("partial");
    let (source, html) = (scratch.path("in.json"), scratch.path("out.html"));
    fs::write(&source, sample(false).to_string()).expect("writable");
    let made = output(&["--from", &source, "--html", &html]);
    assert!(String::from_utf8_lossy(&made.stdout).contains("not complete"));
    assert!(
        fs::read_to_string(&html)
            .expect("written")
            .contains("Cut short")
    );
}

#[test]
fn a_full_disk_at_the_end_is_an_error_and_the_table_is_printed_nevertheless() {
    let scratch = Scratch::new("full");
    let source = scratch.path("in.json");
    fs::write(&source, sample(true).to_string()).expect("writable");
    let made = output(&["--from", &source, "--json", "/dev/full"]);
    refused(&made, 125, &["/dev/full", "No space left"]);
    assert!(String::from_utf8_lossy(&made.stdout).contains("memhog"));
}

#[test]
fn a_real_guest_is_measured() {
    let scratch = Scratch::new("real");
    let (json, html) = (scratch.path("r.json"), scratch.path("r.html"));
    let made = output(&[
        "idle", "--linux", "none", "--rounds", "2", "-m", "128M", "--accel", "tcg", "--json",
        &json, "--html", &html,
    ]);
    assert_eq!(
        made.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let report = read(&json);
    assert_eq!(report["complete"], true);
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 6, "two rounds in each of three modes");
    for run in runs {
        assert_eq!(run["outcome"], "ok", "{run}");
        assert!(
            run["timeline"]
                .as_array()
                .is_some_and(|points| !points.is_empty())
        );
        assert!(run["record"]["qemu"]["command"].is_array(), "{run}");
    }
    let metrics: Vec<&str> = report["table"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["metric"].as_str())
        .collect();
    for metric in ["ready_s", "ready_on_host", "resident_at_start", "qemu_cpu"] {
        assert!(
            metrics.contains(&metric),
            "{metric} is missing in {metrics:?}"
        );
    }
    assert!(
        fs::read_to_string(&html)
            .expect("written")
            .contains("Ebb, measured")
    );
}

#[test]
fn a_kernel_that_does_not_boot_fails_the_comparison_and_says_why() {
    let scratch = Scratch::new("kernel");
    let (json, kernel) = (scratch.path("r.json"), scratch.path("kernel"));
    fs::write(&kernel, b"not a kernel").expect("writable");
    let made = compare(&["idle", "--linux", "none", "--rounds", "5", "--json", &json])
        .env("EBB_KERNEL_IMAGE", &kernel)
        .output()
        .expect("ebb starts");
    refused(&made, 1, &["idle on Ebb", "ELF", "not tried again"]);
    let report = read(&json);
    assert_eq!(report["complete"], false);
    assert!(
        report["runs"]
            .as_array()
            .expect("runs")
            .iter()
            .all(|run| run["outcome"] == "failed")
    );
}

#[test]
fn a_signal_ends_the_guest_and_leaves_a_partial_report() {
    let scratch = Scratch::new("signal");
    let json = scratch.path("r.json");
    let child = compare(&[
        "memhog", "--linux", "none", "-m", "128M", "--accel", "tcg", "--json", &json,
    ])
    .stdout(Stdio::null())
    .stderr(Stdio::piped())
    .spawn()
    .expect("ebb starts");
    // A guest runs as soon as the process has an `ebb run` child.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let deadline = Instant::now() + TIMEOUT;
    let guest = loop {
        let list = fs::read_to_string(&children).unwrap_or_default();
        if let Some(pid) = list.split_whitespace().next() {
            break pid.to_owned();
        }
        assert!(Instant::now() < deadline, "no guest was started");
        std::thread::sleep(Duration::from_millis(20));
    };
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.expect("kill runs").success());
    let ended = child.wait_with_output().expect("it can be waited for");
    assert_eq!(
        ended.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    assert!(
        !Path::new(&format!("/proc/{guest}/exe")).exists(),
        "the guest is left behind"
    );
    let report = read(&json);
    assert_eq!(report["complete"], false);
    assert_eq!(scratch.files(), ["r.json"]);
}
