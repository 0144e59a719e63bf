//! `ebb compare` as users meet it: what it refuses before it runs anything, what it makes of a
//! report, and one real comparison.

#[path = "parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;

use scratch::Scratch;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than a comparison of one small guest takes on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(120);

fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command
        .arg("compare")
        .args(arguments)
        .env_remove("EBB_KERNEL_IMAGE")
        .env_remove("EBB_WORKLOADS")
        .stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    compare(arguments).output().expect("ebb starts")
}

/// The report at `path`.
fn read(path: &str) -> Value {
    serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON")
}

fn refused(output: &Output, status: i32, words: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is missing in: {message}");
    }
}

fn run(experiment: &str, guest: &str, reporting: bool, events: &Value, timeline: &Value) -> Value {
    json!({
        "experiment": experiment, "arguments": ["ebb-workloads", experiment], "guest": guest,
        "give_back": if reporting { "reporting" } else { "off" }, "icount": false, "cpus": 1, "memory_bytes": 1u64 << 30, "round": 1,
        "command": ["ebb", "run", "--timeline", "/tmp/t", "--", "x"], "record": null,
        "events": events, "timeline": timeline, "outcome": "ok"
    })
}

/// A small report of both guests, with hostile text wherever text can come from a guest or a file.
fn sample(complete: bool) -> Value {
    let hostile = "</script><img src=x onerror=alert(1)>&\"'|`";
    let rate = |value: f64| {
        json!([{"event": "result", "metric": "faults_per_second_per_task", "value": value,
            "unit": "1/s", "better": "higher", "labels": {"kind": hostile}},
            {"event": "distribution", "metric": "huge_fault_ns", "unit": "ns", "better": "lower",
             "percentiles": [[5, value], [50, value * 2.0], [100, value * 9.0]], "count": 3, "labels": {}}])
    };
    let phases = json!([
        {"host_s": 0.1, "event": "phase", "name": "start", "at_s": 0.1, "bytes": 104857600},
        {"host_s": 0.4, "event": "phase", "name": "pooled", "at_s": 0.4, "bytes": 104857600},
        {"host_s": 1.0, "event": "phase", "name": "touched", "at_s": 1.0, "bytes": 104857600},
        {"host_s": 2.0, "event": "phase", "name": "free", "at_s": 2.0, "bytes": 104857600},
        {"host_s": 2.0, "event": "phase", "name": "freed", "at_s": 2.1, "bytes": 104857600},
        {"host_s": 9.0, "event": "phase", "name": "end", "at_s": 9.0}
    ]);
    let curve = |slow: u64| -> Value {
        (0..100u64)
            .map(|step| {
                let t_ms = step * 100;
                let held = if t_ms < 1000 {
                    t_ms * 100_000
                } else if t_ms < 2000 + slow {
                    110_000_000
                } else {
                    4_000_000
                };
                json!({"t_ms": t_ms, "used": held / 2, "resident": held, "reported": 0})
            })
            .collect()
    };
    let mut unsupported = run("hugetlb", "ebb", true, &json!([]), &json!([]));
    unsupported["outcome"] = json!("unsupported");
    unsupported["error"] = json!(hostile);
    json!({
        "schema": 2, "complete": complete, "created": "2026-01-02T03:04:05Z",
        "host": {"cpu": hostile, "cpus": 2, "kernel": "Linux 6", "memory_bytes": 1u64 << 34},
        "ebb_version": "0.1.0", "qemu_version": "7.2", "options": ["ebb", "compare", hostile],
        "guests": [
            {"name": "ebb", "release": "0.1.0", "machine": "microvm", "kernel_arguments": "a"},
            {"name": "linux", "release": "6.1", "machine": "microvm", "kernel_arguments": hostile}],
        "differences": [hostile],
        "runs": [
            run("page-fault/4k", "ebb", true, &rate(1000.0), &json!([])),
            run("page-fault/4k", "linux", true, &rate(400.0), &json!([])),
            run("memhog", "ebb", true, &phases, &curve(1000)),
            run("memhog", "linux", true, &phases, &curve(4000)),
            unsupported
        ],
        "table": []
    })
}

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
    assert!(begun.elapsed() < PATIENCE);
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

/// The fields of a CSV by the names in its first line.
fn table(path: &str) -> Vec<std::collections::BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(path).expect("written");
    let lines = reader.deserialize();
    lines
        .map(|line| line.expect("as many fields as names"))
        .collect()
}

#[test]
fn a_program_of_ones_own_is_measured_in_every_column() {
    let scratch = Scratch::new("own");
    let (html, markdown) = (scratch.path("own.html"), scratch.path("own.md"));
    let (json, csv, curve) = (
        scratch.path("own.json"),
        scratch.path("own.csv"),
        scratch.path("curve.csv"),
    );
    let script = r#"echo hello; echo '{"event":"result","metric":"rate","value":7,"unit":"1/s","better":"higher"}'; exit 3"#;
    let made = output(&[
        "--linux",
        "none",
        "--accel",
        "tcg",
        "--rounds",
        "2",
        "-m",
        "128M",
        "--variant",
        "half: -m 64M --give-back off",
        "--json",
        &json,
        "--csv",
        &csv,
        "--timeline-csv",
        &curve,
        "--html",
        &html,
        "--markdown",
        &markdown,
        "--",
        "sh",
        "-c",
        script,
    ]);
    // It failed, and is measured all the same.
    let told = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(1), "{told}");
    assert!(
        told.contains("half, round 2: the program ended with status 3"),
        "{told}"
    );
    assert!(
        told.contains("ebb: 4 runs") && told.contains("4 of 4"),
        "{told}"
    );
    let text = String::from_utf8(made.stdout).expect("it is text");
    for row in [
        "time of the program",
        "resident at the peak",
        "stranded at the end",
        "page faults",
    ] {
        assert!(text.contains(row), "{row} is missing in\n{text}");
    }
    let row = |name: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(name))
    };
    assert!(
        row("rate").is_some_and(|line| line.contains("1.00×")),
        "{text}"
    );
    assert!(
        row("exit status").is_some_and(|line| line.matches(" 3").count() == 2),
        "{text}"
    );

    let report = read(&json);
    assert_eq!(report["complete"], true);
    assert_eq!(
        report["columns"][1]["options"],
        json!(["-m", "64M", "--give-back", "off"])
    );
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(4));
    for run in report["runs"].as_array().expect("runs") {
        let memory = if run["column"] == 1 {
            64u64 << 20
        } else {
            128 << 20
        };
        assert_eq!(run["memory_bytes"], memory);
        assert_eq!(run["record"]["status"]["code"], 3);
        let clock = |name: &str| run["record"][name].as_f64().expect("a time");
        assert!(clock("ended_guest_s") > clock("started_guest_s"));
        assert!(
            run["record"]["faults"]
                .as_u64()
                .is_some_and(|faults| faults > 0)
        );
    }
    let lines = table(&csv);
    let of = |metric: &str| lines.iter().filter(|line| line["metric"] == metric).count();
    for metric in [
        "program_s",
        "faults",
        "exit_status",
        "peak_resident",
        "final_resident",
        "rate",
    ] {
        assert_eq!(of(metric), 4, "{metric}");
    }
    assert!(table(&curve).iter().any(|line| line["column"] == "half"));
    let page = fs::read_to_string(&html).expect("written");
    stands_alone(&page, 0);
    let document = fs::read_to_string(&markdown).expect("written");
    for words in ["time of the program", "half", "program ended with status 3"] {
        assert!(page.contains(words), "{words} is missing in {page}");
        assert!(document.contains(words), "{words} is missing in {document}");
    }
    // Read again it is the same, to the letter; and it agrees with itself.
    let again = scratch.path("again.html");
    let from = output(&["--from", &json, "--html", &again]);
    assert_eq!(from.status.code(), Some(1), "its runs failed");
    assert_eq!(String::from_utf8_lossy(&from.stdout), text);
    assert_eq!(fs::read_to_string(&again).expect("written"), page);
}

/// A comparison of columns, with hostile text wherever text can come from a program or a file.
fn columns(rate: f64, icount: bool) -> Value {
    let hostile = "</script><img src=x onerror=alert(1)>&\"'|`\u{1b}[2J";
    let run = |column: usize, round: u32, value: f64| {
        let guest = if column == 1 { "linux" } else { "ebb" };
        json!({
            "column": column, "experiment": format!("./mine {hostile}"), "arguments": [], "guest": guest,
            "give_back": "reporting", "icount": icount, "cpus": 1, "memory_bytes": 1u64 << 30, "round": round,
            "command": ["ebb", "run", "--timeline", "/tmp/t", "--", hostile],
            "record": {"started_s": 0.5, "status": {"code": 0}, "faults": 7, "summary": {"peak_used": 1 << 20}},
            "events": [{"event": "result", "metric": "rate", "value": value, "unit": "1/s", "better": "higher",
                "labels": {"kind": hostile}}],
            "timeline": [{"t_ms": 0.0, "resident": 5e6, "used": 1e6}, {"t_ms": 2000.0, "resident": 5e7, "used": 1e7}],
            "outcome": "ok"
        })
    };
    let mut failed = run(2, 1, 1.0);
    failed["outcome"] = json!("unsupported");
    failed["error"] = json!(hostile);
    failed["events"] = json!([]);
    json!({
        "kind": "columns", "schema": 2, "complete": false, "created": "2026-01-02T03:04:05Z", "ebb_version": "0.1.0",
        "host": {"cpu": hostile, "cpus": 2, "kernel": "Linux 1", "memory_bytes": 1u64 << 30},
        "options": ["ebb", "compare", hostile],
        "columns": [{"name": "Ebb", "options": []}, {"name": hostile, "options": [hostile]}, {"name": "third", "options": ["-m", "1G"]}],
        "runs": [run(0, 1, 100.0), run(1, 1, rate), run(0, 2, 102.0), run(1, 2, rate * 1.02), failed],
        "table": []
    })
}

#[test]
fn columns_become_a_page_and_markdown_and_are_held_against_others() {
    let scratch = Scratch::new("columns");
    let here = scratch.write("here.json", columns(50.0, false).to_string());
    let (html, markdown) = (scratch.path("out.html"), scratch.path("out.md"));
    let made = output(&["--from", &here, "--html", &html, "--markdown", &markdown]);
    assert!(made.status.success(), "{made:?}");
    let text = String::from_utf8(made.stdout).expect("text");
    assert!(
        text.contains("0.50×") && text.contains("cut short"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    let page = fs::read_to_string(&html).expect("written");
    stands_alone(&page, 2);
    for words in ["0.50×", "Cut short", "third", "unsupported", "behind-text"] {
        assert!(page.contains(words), "{words} is missing in {page}");
    }
    let document = fs::read_to_string(&markdown).expect("written");
    assert!(
        document.contains("0.50×") && document.contains("&lt;img"),
        "{document}"
    );
    let plot = fs::read_to_string(scratch.path("plots/columns-memory-1.svg")).expect("a plot");
    roxmltree::Document::parse(&plot).expect("the plot is well-formed");

    let against = |other: Value| {
        let other = scratch.write("other.json", other.to_string());
        output(&["--from", &here, "--against", &other])
    };
    let near = against(columns(52.0, false));
    let said = String::from_utf8(near.stdout).expect("text");
    assert_eq!(near.status.code(), Some(0), "{said}");
    for word in ["0.50×", "0.52×", "−4.0 %", "agrees"] {
        assert!(said.contains(word), "{word} is missing in {said}");
    }
    let far = against(columns(60.0, false));
    assert_eq!(far.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&far.stdout).contains("DIFFERS"));
    // Counted instructions must agree within 1 %.
    let counted = scratch.write("counted.json", columns(50.0, true).to_string());
    let close = scratch.write("close.json", columns(51.0, true).to_string());
    let made = output(&["--from", &counted, "--against", &close]);
    assert_eq!(made.status.code(), Some(1), "{made:?}");

    let kernels = scratch.write("kernels.json", sample(true).to_string());
    for arguments in [
        &["--from", &here, "--against", &kernels][..],
        &["--from", &kernels, "--against", &here],
        &["--against", &kernels, "--linux", "none", "--", "sh"],
        &["--against", &here, "--linux", "none", "idle"],
    ] {
        let words = ["experiments on both kernels", "columns"];
        refused(&output(arguments), 125, &words);
    }
    refused(
        &output(&["--from", &here, "--from", &kernels]),
        125,
        &["here.json", "stand alone"],
    );
    for (field, value, words) in [
        ("kind", json!("rows"), &["rows"][..]),
        ("schema", json!(1), &["schema is 1"]),
        ("columns", json!([]), &["0 columns"]),
        (
            "columns",
            json!([{"name": "Ebb", "options": []}, {"name": "Ebb", "options": []}]),
            &["\"Ebb\""],
        ),
        (
            "columns",
            json!([{"name": "Ebb", "options": []}]),
            &["column 1, of 1"],
        ),
        ("runs", json!([{"column": 0}]), &["missing field"]),
    ] {
        let mut report = columns(50.0, false);
        report[field] = value;
        let path = scratch.write("bad.json", report.to_string());
        refused(&output(&["--from", &path]), 125, words);
    }
}

#[test]
fn a_counted_program_is_the_same_each_time() {
    let scratch = Scratch::new("counted");
    let csv = scratch.path("counted.csv");
    let counted = || {
        let made = output(&[
            "--linux",
            "none",
            "--icount",
            "--rounds",
            "1",
            "-m",
            "64M",
            "--csv",
            &csv,
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 200 ]; do i=$((i+1)); done",
        ]);
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let lines = table(&csv);
        let line = lines.iter().find(|line| line["metric"] == "program");
        let line = line.expect("instructions");
        assert_eq!(line["unit"], "instructions");
        line["value"].clone()
    };
    assert_eq!(counted(), counted());
}

#[test]
fn files_that_are_no_reports_are_refused() {
    let scratch = Scratch::new("bad");
    let mut wrong_schema = sample(true);
    wrong_schema["schema"] = json!(99);
    for (name, text, word) in [
        ("text.json", "hello".to_owned(), "not JSON"),
        ("schema.json", wrong_schema.to_string(), "schema is 99"),
        ("other.json", "{\"schema\": 2}".to_owned(), "missing field"),
    ] {
        let path = scratch.path(name);
        fs::write(&path, text).expect("writable");
        refused(&output(&["--from", &path]), 125, &[name, word]);
    }
    refused(
        &output(&["--from", &scratch.path("none.json")]),
        125,
        &["none.json"],
    );
}

#[test]
fn a_report_becomes_table_page_markdown_and_itself() {
    let scratch = Scratch::new("report");
    let (source, json, html, markdown) = (
        scratch.path("in.json"),
        scratch.path("out.json"),
        scratch.path("out.html"),
        scratch.path("out.md"),
    );
    fs::write(&source, sample(true).to_string()).expect("writable");
    let arguments = [
        "--from",
        &source,
        "--json",
        &json,
        "--html",
        &html,
        "--markdown",
        &markdown,
    ];
    let made = output(&arguments);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let table = String::from_utf8(made.stdout).expect("it is text");
    assert!(!table.contains('\x1b'), "colour is for terminals");
    assert!(
        table
            .lines()
            .any(|line| line.contains("faults a task") && line.contains("2.50×")),
        "{table}"
    );
    // 1 s against 4 s after the memory was freed.
    assert!(
        table
            .lines()
            .any(|line| line.contains("half back") && line.contains("4.00×")),
        "{table}"
    );
    // 10 MB were resident at the start, 40 MB when the pool was there.
    assert!(
        table
            .lines()
            .any(|line| line.contains("taken by the pool") && line.contains("28.6")),
        "{table}"
    );
    assert!(table.contains("Not supported, and no pass"), "{table}");
    for line in table.lines().take_while(|line| !line.is_empty()) {
        assert!(line.chars().count() <= 80, "{line}");
    }

    // Read again, the report says the same.
    let first = read(&json);
    assert_eq!(first["runs"].as_array().map(Vec::len), Some(5));
    let row = first["table"]
        .as_array()
        .expect("rows")
        .iter()
        .find(|row| row["metric"] == "faults_per_second_per_task")
        .expect("the rate");
    assert_eq!(row["ratio"], 2.5);
    let again = scratch.path("again.json");
    assert!(
        output(&["--from", &json, "--json", &again])
            .status
            .success()
    );
    assert_eq!(
        fs::read(&json).expect("written"),
        fs::read(&again).expect("written")
    );

    stands_alone(&fs::read_to_string(&html).expect("written"), 6);
    let text = fs::read_to_string(&markdown).expect("written");
    assert!(text.contains("plots/memhog-memory.svg"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with("<!-- ")) {
        // What stands between backticks is code, which Markdown shows as it is.
        let mut outside = line.split('`').step_by(2);
        let tag = outside.any(|part| part.contains('<'));
        assert!(!tag, "text of a guest became a tag: {line}");
    }
    for file in fs::read_dir(Path::new(&scratch.path("plots"))).expect("plots") {
        let svg = fs::read_to_string(file.expect("readable").path()).expect("text");
        roxmltree::Document::parse(&svg).expect("a plot is XML");
        assert!(
            !svg.replace("http://www.w3.org/2000/svg", "")
                .contains("://")
        );
    }
    assert_eq!(
        scratch.files(),
        [
            "again.json",
            "in.json",
            "out.html",
            "out.json",
            "out.md",
            "plots"
        ]
    );
}

/// No address but its own, no script, and tags that close.
fn stands_alone(page: &str, least_plots: usize) {
    for foreign in [
        "://", "src=", "<script", "<link", "url(", "@import", "<img", "<iframe",
    ] {
        let found = page
            .find(foreign)
            .map(|at| &page[at..(at + 60).min(page.len())]);
        // Text of a guest may say anything as long as it stays text.
        assert!(
            found.is_none_or(|_| foreign == "src="),
            "{foreign}: {found:?}"
        );
    }
    assert!(!page.contains("<img src"), "text of a guest became a tag");
    let body = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    let mut closed = String::new();
    let mut rest = body;
    // HTML's empty elements end themselves; XML wants to see it.
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        let end = tag.find('>').expect("a tag ends");
        let name = tag[1..end].split([' ', '/']).next().unwrap_or("");
        closed.push_str(before);
        closed.push_str(&tag[..end]);
        closed.push_str(if ["meta", "br"].contains(&name) {
            "/>"
        } else {
            ">"
        });
        rest = &tag[end + 1..];
    }
    closed.push_str(rest);
    let document = roxmltree::Document::parse(&closed).expect("the page is well-formed");
    let plots: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name("svg"))
        .collect();
    assert!(plots.len() >= least_plots, "{} plots", plots.len());
    let mut ids = std::collections::BTreeSet::new();
    for id in document
        .descendants()
        .filter_map(|node| node.attribute("id"))
    {
        assert!(ids.insert(id), "{id} twice");
    }
    for plot in plots {
        for name in ["title", "desc"] {
            let text = plot
                .children()
                .find(|node| node.has_tag_name(name))
                .and_then(|node| node.text());
            assert!(
                text.is_some_and(|text| !text.is_empty()),
                "a plot without {name}"
            );
        }
        for id in plot
            .attribute("aria-labelledby")
            .expect("labelled")
            .split(' ')
        {
            assert!(ids.contains(id), "{id} is nowhere");
        }
    }
    assert!(
        document
            .descendants()
            .any(|node| node.has_tag_name("table"))
    );
}

#[test]
fn two_comparisons_agree_or_do_not() {
    let scratch = Scratch::new("against");
    let slower = |rate: f64| {
        let mut report = sample(true);
        // The faults of the Linux guest.
        report["runs"][1]["events"][0]["value"] = json!(rate);
        report.to_string()
    };
    let here = scratch.write("here.json", slower(400.0));
    let near = scratch.write("near.json", slower(380.0));
    let far = scratch.write("far.json", slower(300.0));
    let against = |other: &str| output(&["--from", &here, "--against", other]);
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).expect("text");

    let agrees = against(&near);
    assert_eq!(agrees.status.code(), Some(0), "{}", text(&agrees));
    // 2.5 times here, 2.63 there.
    let said = text(&agrees);
    let row = said.lines().find(|line| line.contains("faults a task"));
    let row = row.expect("the row is there");
    for word in ["2.50×", "2.63×", "−5.3 %", "agrees"] {
        assert!(row.contains(word), "{word} is missing in {row}");
    }

    let differs = against(&far);
    assert_eq!(differs.status.code(), Some(1), "{}", text(&differs));
    assert!(text(&differs).contains("DIFFERS"), "{}", text(&differs));

    // Counted instructions must agree within 1 %, and are not the same row as times.
    let mut counted = sample(true);
    for run in counted["runs"].as_array_mut().expect("runs") {
        run["icount"] = json!(true);
    }
    let counted = scratch.write("counted.json", counted.to_string());
    let neither = against(&counted);
    assert_eq!(neither.status.code(), Some(1), "{}", text(&neither));
    assert!(text(&neither).contains("not in both"), "{}", text(&neither));

    let markdown = scratch.path("agreement.md");
    let arguments = [
        "--from",
        &here,
        "--against",
        &near,
        "--against-markdown",
        &markdown,
    ];
    assert!(output(&arguments).status.success());
    let written = fs::read_to_string(&markdown).expect("written");
    assert!(written.contains("| 2.50× | 2.63× |"), "{written}");
    refused(
        &output(&["--from", &here, "--against", "/nonexistent.json"]),
        125,
        &["/nonexistent.json"],
    );
    refused(
        &output(&["--from", &here, "--against-markdown", &markdown]),
        125,
        &["--against"],
    );
}

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
    assert_eq!(runs.len(), 2, "a boot of each");
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

/// Counted, a second comparison has the same figures, however busy the machine is.
#[test]
fn counted_figures_are_the_same_in_every_comparison() {
    let scratch = Scratch::new("counted");
    let json = scratch.path("r.json");
    let table = || {
        let made = output(&[
            "memhog",
            "messaging",
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
    assert!(first.to_string().contains("release_s"), "{first}");
    assert_eq!(table(), first);
}

/// Whether Debian's kernel is here or can be fetched.
fn has_linux() -> bool {
    let words = ["run", "--kernel", "linux", "--print-qemu", "--", "true"];
    let asked = Command::new(env!("CARGO_BIN_EXE_ebb")).args(words).output();
    let found = asked.expect("ebb starts").status.success();
    if !found {
        eprintln!("SKIPPED, there is no stock kernel");
    }
    found
}

#[test]
fn the_pool_of_huge_pages_is_compared_on_both_kernels() {
    if !has_linux() {
        return;
    }
    let scratch = Scratch::new("pool");
    let json = scratch.path("r.json");
    let wanted = [
        ("hugetlb/kept", "allocate_page_ns"),
        ("hugetlb/given-up", "saved_kib"),
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
    // Only Linux is told what to do with descriptors.
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
    assert_eq!(runs.len(), 4, "two rounds, reporting and not");
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
    // A guest of it runs once there is an `ebb run` below it.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let deadline = Instant::now() + PATIENCE;
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
