//! Tests that a program which passes invalid arguments to every system call does not harm the
//! guest.

use crate::{ebb, programs};

/// Runs `hostile` with these arguments, and then an ordinary program in the same guest.
#[track_caller]
fn attack(options: &[&str], words: &str) {
    let hostile = format!("{}:/hostile", programs::text(programs::path("hostile")));
    let honest = format!("{}:/honest", programs::text(programs::path("pipes")));
    let script = format!(
        "before=$(awk '/MemFree/ {{ print $2 }}' /proc/meminfo); \
         /hostile {words} 2> /tmp/said || echo \"hostile ended with $?\"; cat /tmp/said >&2; \
         rm -rf /tmp/*; cd /tmp; /honest > /dev/null 2>&1; echo \"honest ended with $?\"; \
         for i in $(seq 600); do sleep 0.5; after=$(awk '/MemFree/ {{ print $2 }}' /proc/meminfo); \
         [ $((before - after)) -ge 8192 ] || break; done; echo lost $((before - after)) KiB >&2; \
         [ $((before - after)) -lt 8192 ] || echo memory is lost"
    );
    let mut all = vec![
        "-m",
        "512M",
        "--busybox",
        "--file",
        &hostile,
        "--file",
        &honest,
    ];
    all.extend(options);
    let outcome = ebb::run(900, &all, &["sh", "-c", &script]);
    let out = outcome.expect(0).out();
    let mode = words.split(' ').next().expect("a mode");
    let lines: Vec<_> = out
        .lines()
        .filter(|line| !line.starts_with("calls up to"))
        .collect();
    let done = format!("{mode}: done");
    assert_eq!(
        lines,
        [done.as_str(), "honest ended with 0"],
        "{}",
        outcome.err()
    );
    let calls: u64 = outcome
        .err()
        .lines()
        .find_map(|line| line.split_once(" calls, ")?.0.parse().ok())
        .expect("the number of calls");
    assert!(calls > 5_000, "only {calls} calls were made");
}

#[test]
fn every_call_with_every_hostile_argument() {
    attack(&["-c", "2"], "systematic");
}

#[test]
fn every_call_on_one_cpu() {
    attack(&["-c", "1", "--machine", "q35"], "systematic");
}

/// Returns the seed. It is fixed, so that a failure can be repeated. EBB_TEST_SEED sets another
/// one.
fn seed(default: &str) -> String {
    std::env::var("EBB_TEST_SEED").unwrap_or_else(|_| default.to_owned())
}

#[test]
fn random_calls() {
    for number in ["1", "2", "3"] {
        attack(&["-c", "2"], &format!("random {} 30000", seed(number)));
    }
}

#[test]
fn random_sequences() {
    for number in ["1", "2", "3"] {
        attack(&["-c", "4"], &format!("sequences {} 60000", seed(number)));
    }
}
