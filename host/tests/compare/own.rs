//! Comparisons of a user's own programs, in columns.

use crate::scratch::Scratch;
use crate::{output, read, refused, sample, stands_alone};
use serde_json::{Value, json};
use std::fs;

/// Returns the rows of a CSV file by the names in its first line.
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
    // The run failed and is measured nevertheless.
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
    // Runs that failed have figures and no ratios.
    assert!(
        row("rate").is_some_and(|line| line.contains('7') && !line.contains('×')),
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
    // The report that is read again is identical, and it agrees with itself.
    let again = scratch.path("again.html");
    let from = output(&["--from", &json, "--html", &again]);
    assert_eq!(from.status.code(), Some(1), "its runs failed");
    assert_eq!(String::from_utf8_lossy(&from.stdout), text);
    assert_eq!(fs::read_to_string(&again).expect("written"), page);
}

/// Returns a comparison of columns, with hostile text at every place where text can come from a
/// program or a file.
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
