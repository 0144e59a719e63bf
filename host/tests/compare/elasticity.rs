//! Tests of `ebb compare elasticity` with small guests: every experiment produces its figures.

use crate::guests::has_linux;
use crate::scratch::Scratch;
use crate::{output, read, refused};
use serde_json::Value;

/// Runs a comparison that must succeed. Returns its report and its output.
fn made(test: &str, words: &[&str]) -> (Value, String) {
    let scratch = Scratch::new(test);
    let json = scratch.path("r.json");
    let mut all = words.to_vec();
    all.extend(["--rounds", "1", "--accel", "tcg", "--json", &json]);
    let made = output(&all);
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert_eq!(made.status.code(), Some(0), "{said}");
    (read(&json), said)
}

/// Returns the figure in `column` of the row with this metric and label. Returns `None` if there is
/// none.
fn figure(report: &Value, metric: &str, label: (&str, &str), column: &str) -> Option<f64> {
    let row = report["table"].as_array()?.iter().find(|row| {
        row["metric"] == metric && (label.0.is_empty() || row["labels"][label.0] == label.1)
    })?;
    let mut cells = row["cells"].as_array()?.iter();
    cells.find(|cell| cell["column"] == column)?["median"].as_f64()
}

const ANY: (&str, &str) = ("", "");

#[test]
#[ignore = "minutes of guests: cargo test --release -p ebb --test compare -- --ignored"]
fn ebb_shrinks_by_each_of_its_ways_and_the_paper_stands_beside() {
    let words = ["elasticity/memory", "--linux", "none", "-m", "256M"];
    let (report, _) = made("elastic-memory", &words);
    let touched = ("pages", "touched");
    for column in ["Ebb", "Ebb, reclaim", "Ebb, balloon"] {
        let rate = figure(&report, "shrink", touched, column).expect(column);
        assert!(rate > 0.0, "{column}: {rate}");
        // About 192 of 256 MiB have gone back.
        let held = figure(&report, "held_after_shrink", ANY, column).expect(column);
        assert!(held < f64::from(96 << 20), "{column}: {held}");
        let filled = figure(&report, "grow_and_fill", touched, column).expect(column);
        assert!(filled > 0.0, "{column}: {filled}");
    }
    let balloon = figure(&report, "grow", touched, "Ebb, balloon");
    assert!(balloon.is_some_and(|rate| rate > 0.0));
    // The host takes no memory from a guest while it grows, so there is no figure.
    assert_eq!(figure(&report, "grow", touched, "Ebb"), None);
    let paper = figure(&report, "shrink", touched, "paper: HyperAlloc").expect("the paper's");
    assert!((300.0..400.0).contains(&paper), "{paper}");
}

#[test]
#[ignore = "minutes of guests: cargo test --release -p ebb --test compare -- --ignored"]
fn stream_and_ftq_are_measured_while_memory_leaves_and_returns() {
    let words = ["elasticity/ftq", "elasticity/stream"];
    let (report, _) = made(
        "elastic-windows",
        &[&words[..], &["--linux", "none", "-m", "192M"]].concat(),
    );
    for subject in words {
        let of_subject = |row: &&Value| {
            let name = row["subject"].as_str();
            row["metric"] == "loss" && name.is_some_and(|name| name.starts_with(subject))
        };
        let rows = report["table"].as_array().expect("rows");
        let rows: Vec<&Value> = rows.iter().filter(of_subject).collect();
        assert_eq!(rows.len(), 2, "leave and return");
        for row in rows {
            // There are four rounds in one boot, with each mode.
            let cells = row["cells"].as_array().expect("cells");
            assert_eq!(cells.len(), 4, "{row}");
            assert!(cells.iter().all(|cell| cell["rounds"] == 4), "{row}");
        }
    }
}

#[test]
#[ignore = "minutes of guests: cargo test --release -p ebb --test compare -- --ignored"]
fn three_guests_build_one_after_the_other_and_what_a_variant_cannot_do_is_said() {
    let words = ["elasticity/builds", "--linux", "none", "-m", "256M"];
    let variant = ["--variant", "asked: --give-back off"];
    let (report, said) = made("elastic-builds", &[&words[..], &variant].concat());
    assert!(said.contains("cannot be done on asked"), "{said}");
    let share = figure(&report, "area_of_off", ANY, "Ebb").expect("a share");
    assert!(share > 0.0 && share < 1.0, "{share}");
    let peak = figure(&report, "held_peak", ANY, "Ebb").expect("a peak");
    assert!(peak > f64::from(3 << 20), "{peak}");
    let runs = report["runs"].as_array().expect("runs");
    let run = runs.iter().find(|run| run["outcome"] == "unsupported");
    let why = run.expect("the variant's")["error"]
        .as_str()
        .map(str::to_owned);
    assert!(why.is_some_and(|why| why.contains("by itself")));
    // Each of the three guests builds twice.
    let rounds = runs[0]["events"].as_array().expect("events").iter();
    assert_eq!(
        rounds.filter(|event| event["metric"] == "round_s").count(),
        6
    );
}

#[test]
#[ignore = "minutes of guests: cargo test --release -p ebb --test compare -- --ignored"]
fn linux_shrinks_by_its_balloon_by_virtio_mem_and_by_reporting() {
    if !has_linux() {
        return;
    }
    let (report, _) = made("elastic-linux", &["elasticity/memory", "-m", "1G"]);
    for column in ["Linux, balloon", "Linux, virtio-mem", "Linux, reporting"] {
        let rate = figure(&report, "shrink", ("pages", "touched"), column);
        assert!(rate.is_some_and(|rate| rate > 0.0), "{column}: {report}");
    }
    for column in ["Linux, balloon", "Linux, virtio-mem"] {
        let rate = figure(&report, "grow", ("pages", "untouched"), column);
        assert!(rate.is_some_and(|rate| rate > 0.0), "{column}: {report}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    for (words, told) in [
        (&["elasticity", "idle"][..], "a comparison for itself"),
        (&["elasticity", "--icount"], "--icount does not go"),
        (&["elasticity", "-m", "64M"], "needs -m 192"),
        (
            &["elasticity", "--variant", "Ebb: --give-back off"],
            "called `Ebb`",
        ),
    ] {
        let all = [words, &["--linux", "none"]].concat();
        refused(&output(&all), 125, &[told]);
    }
}
