//! Tests of page hinting: memory that a program frees leaves the host, fragments too. The mode
//! changes while programs store and free, and no byte is lost.

use crate::ebb::{self, Guest, Holder};
use crate::programs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// The resident memory in MiB of a guest whose program has just started.
const START_MIB: u64 = 16;
/// A time that is longer than the longest delay of a hint and than two passes of the reporter.
const LONG: Duration = Duration::from_secs(6);
const HINTING: [&str; 6] = ["-m", "512M", "-c", "2", "--give-back", "hinting"];

fn set(guest: &str, knob: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["set", "--guest", guest, knob]);
    command.output().expect("ebb starts")
}

/// Changes the mode of a guest and asserts that the guest follows.
#[track_caller]
fn switch(guest: &Guest, mode: &str) {
    let (id, knob) = (guest.child.id().to_string(), format!("give-back={mode}"));
    let output = ebb::again_if_late(|| set(&id, &knob));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}");
    assert!(out.ends_with(&format!("give-back={mode}\n")), "{out}");
}

#[test]
fn freed_memory_leaves_the_host_again_and_again() {
    let mut holder = Holder::start(&HINTING);
    for round in 0..5 {
        holder.tell("take 300", "taken");
        assert!(holder.resident_mib() >= 300, "round {round}");
        holder.tell("free", "freed");
        holder.falls_to(START_MIB);
    }
}

#[test]
fn pieces_leave_it_where_the_order_is_small() {
    let mut holder = Holder::start(&HINTING);
    let order = "/sys/module/page_hinting/parameters/page_hinting_order";
    for small in ["0", "4", "7"] {
        holder.tell(&format!("write {order} {small}"), "written");
        holder.tell(&format!("show {order}"), small);
        holder.tell("take 200", "taken");
        if small == "0" {
            // Every other page is freed, so no larger range becomes free.
            holder.tell("sparse", "freed");
            holder.falls_to(100 + START_MIB + 8);
        }
        holder.tell("free", "freed");
        holder.falls_to(START_MIB);
    }
}

#[test]
fn a_mode_that_is_set_holds_for_what_is_free_already() {
    let mut holder = Holder::start(&["-m", "512M", "-c", "2", "--give-back", "off"]);
    let take_and_free = |holder: &mut Holder| {
        holder.tell("take 200", "taken");
        holder.tell("free", "freed");
    };
    take_and_free(&mut holder);
    thread::sleep(LONG);
    assert!(holder.resident_mib() >= 200, "nothing goes back");
    switch(&holder.guest, "hinting");
    holder.falls_to(START_MIB);
    take_and_free(&mut holder);
    holder.falls_to(START_MIB);
    switch(&holder.guest, "off");
    take_and_free(&mut holder);
    thread::sleep(LONG);
    assert!(holder.resident_mib() >= 200, "nothing goes back again");
    switch(&holder.guest, "reporting");
    holder.falls_to(START_MIB);
    take_and_free(&mut holder);
    holder.falls_to(START_MIB);
}

/// Runs a storm that verifies its memory, while that memory is hinted and the mode changes. On a
/// busy host, a short storm may see too few switches, so a longer one follows.
fn storm(cpus: &str, seed: &str, append: &str) {
    let enough = ["20s", "200s"]
        .into_iter()
        .any(|time| switches(cpus, seed, time, append) >= 6);
    assert!(enough, "too few switches");
}

/// Runs a storm for `time`, and returns the number of switches of the mode.
fn switches(cpus: &str, seed: &str, time: &str, append: &str) -> u32 {
    let mut command = ebb::command(
        900,
        &[
            "-m",
            "256M",
            "-c",
            cpus,
            "--give-back",
            "hinting",
            "--append",
            append,
        ],
    );
    command
        .arg("--")
        .arg(programs::path("rust-vmstorm"))
        .args([seed, time])
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit());
    let mut guest = Guest::start(&mut command);
    let modes = ["reporting", "hinting", "off", "hinting", "off", "reporting"];
    let mut switches = 0_u32;
    for mode in modes.into_iter().cycle() {
        thread::sleep(Duration::from_millis(150));
        if let Some(status) = guest.child.try_wait().expect("a child") {
            assert!(status.success(), "{status}");
            break;
        }
        let id = guest.child.id().to_string();
        // This fails if the socket does not exist yet or any more, or if the storm leaves the guest
        // no time.
        switches += u32::from(set(&id, &format!("give-back={mode}")).status.success());
    }
    switches
}

#[test]
#[ignore = "long: make test-long"]
fn a_storm_loses_nothing_while_modes_change() {
    storm("2", "41", "page_hinting.max_fgpt_entries=4");
}

#[test]
#[ignore = "long: make test-long"]
fn a_storm_loses_nothing_while_modes_and_pieces_are_hinted() {
    storm("2", "42", "page_hinting.page_hinting_order=0");
}

#[test]
fn a_guest_that_is_not_there_is_named() {
    let output = set("no-guest-is-called-this", "give-back=off");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{err}");
    assert!(err.contains("no-guest-is-called-this"), "{err}");
    let output = set("no-guest", "give-back=soon");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{err}");
    assert!(err.contains("off, reporting, hinting"), "{err}");
}
