//! Tests of the outputs that are made from a report.

use crate::scratch::Scratch;
use crate::{output, read, refused, sample, stands_alone};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Output;

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
    // 1 s and 4 s after the memory was freed.
    assert!(
        table
            .lines()
            .any(|line| line.contains("half back") && line.contains("4.00×")),
        "{table}"
    );
    // 10 MB were resident at the start, and 40 MB when the pool existed.
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

    // The report that is read again has the same content.
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
        // Text between backticks is code, which Markdown shows unchanged.
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

#[test]
fn the_default_mode_stands_beside_the_one_that_both_kernels_know() {
    let scratch = Scratch::new("default");
    let mut report = sample(true);
    let runs = report["runs"].as_array_mut().expect("runs");
    // A guest in the default mode is 8 times as fast; others give nothing back.
    for (from, mode, rate) in [(0, "shared", 8000.0), (0, "off", 1000.0), (1, "off", 400.0)] {
        let mut run = runs[from].clone();
        run["give_back"] = json!(mode);
        run["events"][0]["value"] = json!(rate);
        runs.push(run);
    }
    let source = scratch.write("in.json", report.to_string());
    let (html, markdown) = (scratch.path("out.html"), scratch.path("out.md"));
    let made = output(&["--from", &source, "--html", &html, "--markdown", &markdown]);
    let said = String::from_utf8(made.stdout).expect("text");
    let row = said.lines().position(|line| line.contains("faults a task"));
    let figures = said
        .lines()
        .nth(row.expect("the rate") + 1)
        .expect("a line");
    let order = ["8000", "1000", "400", "1000", "400", "2.50×"];
    let seen: Vec<&str> = figures.split_whitespace().collect();
    assert_eq!(seen, order, "{said}");
    for line in said.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let default =
        "faults a task: 8000 1/s, with reporting 1000 1/s; beside Linux with reporting 20.0×";
    assert!(said.replace("\n    ", " ").contains(default), "{said}");
    let written = fs::read_to_string(&markdown).expect("written");
    let heads = "| Ebb, shared, the default | Ebb | Linux | Ebb, not reporting |";
    assert!(written.contains(heads), "{written}");
    let page = fs::read_to_string(&html).expect("written");
    stands_alone(&page, 6);
    // On a narrow screen each cell is a line that begins with the name of its column.
    assert!(page.contains("content: attr(data-column)"), "{page}");
    for column in ["Ebb, shared, the default", "Linux", "Ebb is better"] {
        let cell = format!("<td data-column=\"{column}\">");
        assert!(page.contains(&cell), "{cell} is missing in {page}");
    }
    let heads = page.matches("<td").count();
    assert_eq!(page.matches("<td data-column=").count(), heads, "{page}");
}

#[test]
fn histograms_stand_below_the_table() {
    let scratch = Scratch::new("histogram");
    let mut report = sample(true);
    report["runs"][1]["events"][1]["histogram"] = json!([
        {"low": 8192, "high": 16384, "count": 2}, {"low": 16384, "high": 32768, "count": 1}]);
    let source = scratch.write("in.json", report.to_string());
    let paths = ["out.html", "out.md", "out.json"].map(|name| scratch.path(name));
    let [html, markdown, json] = &paths;
    let words = [
        "--from",
        &source,
        "--html",
        html,
        "--markdown",
        markdown,
        "--json",
        json,
    ];
    assert!(output(&words).status.success());
    for path in [html, markdown] {
        let text = fs::read_to_string(path).expect("written");
        assert!(text.contains("a huge fault, ns: Linux"), "{text}");
        let bars = ["@".repeat(40), "@".repeat(20)];
        for (range, bar) in ["[8K, 16K)             2", "[16K, 32K)            1"]
            .iter()
            .zip(bars)
        {
            assert!(text.contains(&format!("{range} |{bar:<40}|")), "{text}");
        }
    }
    // The report has them when it is read again.
    let kept = &read(json)["runs"][1]["events"][1]["histogram"];
    assert_eq!(kept[1]["count"], 1, "{kept}");
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
    // The ratio is 2.5 in the first report and 2.63 in the second.
    let said = text(&agrees);
    let row = said.lines().find(|line| line.contains("faults a task"));
    let row = row.expect("the row is there");
    for word in ["2.50×", "2.63×", "−5.3 %", "agrees"] {
        assert!(row.contains(word), "{word} is missing in {row}");
    }

    let differs = against(&far);
    assert_eq!(differs.status.code(), Some(1), "{}", text(&differs));
    assert!(text(&differs).contains("DIFFERS"), "{}", text(&differs));

    // Counted instructions must agree within 1 %, and they are not in the same row as times.
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
