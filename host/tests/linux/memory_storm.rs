//! Tests with storms over virtual memory: `programs/rust/vmstorm.rs` compares everything that
//! programs see with naive models. It must find no error in guests, and none natively, where an
//! error would be one of the test.

use crate::{ebb, native, programs};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The length of the runs that are part of every test.
const SHORT: &str = "20s";
/// The length of each of the six runs of `make stress-vm`.
const LONG: &str = "95s";
/// The time in seconds after which a guest is ended. It exceeds the length of the storm, because a
/// stuck storm reports that after 90 seconds, and the machine may be busy.
const GUEST_SECONDS: u32 = 900;

/// Runs a storm in a guest with `cpus` CPUs. Fails with the findings as text.
fn storm(cpus: &str, disk: bool, seed: u64, length: &str) -> Result<(), String> {
    let mut options = vec!["-c", cpus, "-m", "256M"];
    let mut words = vec![
        programs::text(programs::path("rust-vmstorm")),
        seed.to_string(),
        length.to_owned(),
    ];
    if disk {
        options.extend(["--disk", "ram:4M"]);
        words.push("disk=/dev/vda".to_owned());
    }
    let outcome = ebb::run(GUEST_SECONDS, &options, &words);
    if outcome.code() == Some(0) {
        return Ok(());
    }
    Err(format!(
        "{cpus} CPUs, disk: {disk}, seed {seed}: {}\n{}",
        outcome.status,
        outcome.err()
    ))
}

#[track_caller]
fn must_find_nothing(cpus: &str, disk: bool, seed: u64) {
    if let Err(text) = storm(cpus, disk, seed, SHORT) {
        panic!("{text}");
    }
}

#[test]
fn nothing_is_found_on_the_host_itself() {
    let deed = native::run(programs::path("rust-vmstorm"), &["1", "10s"], None);
    assert_eq!(deed.status, 0, "{}", String::from_utf8_lossy(&deed.stderr));
}

#[test]
#[ignore = "long: make test-long"]
fn nothing_is_found_with_one_cpu() {
    must_find_nothing("1", true, 1);
}

#[test]
fn nothing_is_found_with_two_cpus() {
    must_find_nothing("2", false, 2);
}

#[test]
#[ignore = "long: make test-long"]
fn nothing_is_found_with_four_cpus() {
    must_find_nothing("4", true, 3);
}

/// Runs `make stress-vm`: storms with random seeds, about ten minutes.
#[test]
#[ignore = "takes ten minutes"]
fn long() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let base = now.unwrap_or(Duration::ZERO).as_secs() % 1_000_000 * 10;
    let mut findings = Vec::new();
    let kinds = ["1", "2", "4"]
        .into_iter()
        .flat_map(|cpus| [(cpus, false), (cpus, true)]);
    for (number, (cpus, disk)) in kinds.enumerate() {
        let seed = base + number as u64;
        eprintln!("{cpus} CPUs, disk: {disk}, seed {seed}");
        findings.extend(storm(cpus, disk, seed, LONG).err());
    }
    assert!(findings.is_empty(), "{}", findings.join("\n\n"));
}
