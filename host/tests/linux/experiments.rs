//! Tests that each experiment of `workloads` ends correctly in a guest and prints its events.

use crate::ebb;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Each experiment with small parameters.
const SHORT: [&str; 57] = [
    "memhog 64M 0 0",
    "memhog 64M 0 0 --hugetlb",
    "memhog 64M 0 1 --count",
    "memhog 64M 0 0 2r",
    "page-fault 4k 2 1r",
    "page-fault thp 1 1r",
    "page-fault 4k 5 0.1",
    "page-fault 4k 5 1r --threads",
    "page-fault file 2 1r --threads",
    "page-fault thp 2 1r --memhog",
    "page-fault hugetlb 2 1r",
    "page-fault hugetlb-file 2 1r --threads",
    "swap-pressure 64M 0",
    "fragment 64M 0 -- huge-latency 16M",
    "fragment 64M 0 -- compact",
    "unmovable 20 0",
    "unmovable 20 1 --traffic",
    "bursts 2 40",
    "build 64M 2 0",
    "heap 32M",
    "sparse 8 0",
    "stalls 64M 1",
    "hugetlb 4",
    "hugetlb all",
    "hugetlb 1 --1g",
    "hugetlb 4 --each",
    "pin 1G 1r --1g",
    "fragment 2600M 0 -- hugetlb 1 --1g",
    "pin 16M 1r",
    "pin 16M 1r --thp",
    "pin 16M 1r --hugetlb",
    "pin 16M 1r --hold",
    "messaging 2 20r",
    "messaging 2 20r --threads",
    "stream 2r",
    "stream 2r --tcp",
    "scale areas 20 4000",
    "scale children 5 50",
    "scale mappers 5 50",
    "scale threads 5 50",
    "scale waiters 5 50",
    "scale timers 5 500",
    "scale descriptors 10 2000",
    "scale directory 10 2000",
    "scale procfs 10 100",
    "parallel dup 2 2r",
    "parallel open 2 2r",
    "parallel mmap 2 2r",
    "parallel mmap-file 2 2r",
    "parallel brk 2 2r",
    "parallel file-fault 2 2r",
    "parallel fault 2 2r",
    "parallel poll 2 2r",
    "parallel poll-128 2 2r",
    "parallel switch 2 2r",
    "idle 0",
    "idle 2",
];

/// Returns the path of the static program: `EBB_WORKLOADS`, or the one that `make workloads`
/// builds.
pub(crate) fn program() -> PathBuf {
    let built = "../target/guest/x86_64-unknown-linux-gnu/guest/ebb-workloads";
    let path = std::env::var_os("EBB_WORKLOADS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join(built),
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "no {}: run `make workloads`",
        path.display()
    );
    path
}

#[test]
fn every_experiment_runs_in_a_guest() {
    let mut script = String::new();
    for words in SHORT {
        script.push_str(&format!(
            "/w --json {words}; echo \"{{\\\"status\\\":\\\"$?\\\"}}\"\n"
        ));
    }
    let file = format!("{}:/w", program().display());
    let options = ["-m", "3G", "-c", "2", "--file", &file];
    let outcome = ebb::run(300, &options, &["sh", "-c", &script]);
    let said = outcome.expect(0).out();
    let mut lines = said.lines().map(|line| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    });
    for words in SHORT {
        let mut events = Vec::new();
        let status = loop {
            let line = lines.next().unwrap_or_else(|| panic!("{words} is missing"));
            if let Some(status) = line["status"].as_str() {
                break status.to_owned();
            }
            events.push(line);
        };
        let last = events
            .last()
            .unwrap_or_else(|| panic!("{words} printed nothing"));
        assert_eq!(status, "0", "{words}: {}", outcome.err());
        assert_ne!(last["event"], "unsupported", "{words}");
        for event in &events {
            if let Some(buckets) = event["histogram"].as_array() {
                let counts = buckets.iter().map(|bucket| bucket["count"].as_u64());
                let sum: Option<u64> = counts.sum();
                assert_eq!(sum, event["count"].as_u64(), "{words}: {event}");
            }
            if event["metric"] == "huge_share" {
                let share = event["value"].as_f64().expect("a number");
                assert!((0.0..=1.0).contains(&share), "{words}: {event}");
            }
        }
    }
    assert!(lines.next().is_none());
}

/// Shows that a task that wakes many others continues for a moment, instead of switching to each of
/// them.
#[test]
fn senders_and_receivers_seldom_take_turns() {
    let program = program().display().to_string();
    for over in ["--pipes", "--sockets"] {
        let words = [&program, "--json", "messaging", "2", "20r", over];
        let outcome = ebb::run(300, &["-m", "1G", "-c", "1", "--icount"], &words);
        let said = outcome.expect(0).out();
        let events = said
            .lines()
            .map(|line| -> Value { serde_json::from_str(line).expect("an event") });
        let switches = events
            .filter(|event| event["metric"] == "switches")
            .find_map(|event| event["value"].as_f64())
            .expect("their number");
        // There are 16,000 messages. There were once two task switches for each.
        assert!(switches < 4000.0, "{over}: {switches}");
    }
}
