//! Tests of the mode `shared`: the host takes memory that a program frees through the words of the
//! guest's allocator. Programs store and free, and modes change, and no byte is lost. An idle guest
//! wakes no thread.

use crate::ebb::{self, Guest, Holder};
use crate::programs;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// The resident memory in MiB of a guest whose program has just started.
const START_MIB: u64 = 16;

fn set(guest: &Guest, knob: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["set", "--guest", &guest.child.id().to_string(), knob]);
    command.output().expect("ebb starts")
}

#[track_caller]
fn switch(guest: &Guest, mode: &str) {
    let output = ebb::again_if_late(|| set(guest, &format!("give-back={mode}")));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{mode}: {err}");
}

fn holder(more: &[&str]) -> Holder {
    Holder::start(&[&["--give-back", "shared"], more].concat())
}

#[test]
fn freed_memory_leaves_the_host_again_and_again() {
    // With one CPU, QEMU's translator makes exchanges atomic only because the guest has a slot for
    // a second one.
    for more in [
        ["-m", "512M", "-c", "1", "--machine", "microvm"],
        ["-m", "512M", "-c", "2", "--machine", "microvm"],
        ["-m", "512M", "-c", "1", "--machine", "q35"],
    ] {
        let mut holder = holder(&more);
        // There are more rounds than the control port has buffers for the guest's rings.
        for round in 0..12 {
            holder.tell("take 300", "taken");
            assert!(holder.resident_mib() >= 300, "{more:?}, round {round}");
            holder.tell("free", "freed");
            holder.falls_to(START_MIB);
        }
    }
}

/// Shows that a guest with RAM on both sides of the devices' addresses, and with two lists of page
/// descriptors, keeps little memory.
#[test]
#[ignore = "long: make test-long"]
fn a_guest_with_a_hole_in_its_ram_keeps_little() {
    let mut holder = holder(&["-m", "3G", "-c", "2", "--machine", "q35"]);
    holder.tell("take 2700", "taken");
    holder.tell("free", "freed");
    // The descriptors of the used memory take 42 MiB.
    holder.falls_to(START_MIB);
    holder.tell("take 2700", "taken");
}

/// Shows that nothing stays of a pool that had most of the memory: its pages go back, and with them
/// their descriptors, which take a 64th of the pool. They come back in other places when the pool
/// shrinks: in single pages for pages of 2 MiB, in large pages for one of 1 GiB. The host keeps the
/// guest's memory in huge pages if there is less than 2.75 GiB of it, and else in base pages.
#[test]
fn a_former_pool_leaves_no_descriptors_behind() {
    const GIB: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";
    const MIB: &str = "/proc/sys/vm/nr_hugepages";
    // Tables, and what the pool needs as long as it exists.
    const MORE_MIB: u64 = 6;
    for (memory, knob, pages, used) in [
        ("3G", MIB, "1300", "2300"),
        ("2G", MIB, "900", "1500"),
        ("2600M", GIB, "1", "2000"),
    ] {
        let mut holder = holder(&["-m", memory, "-c", "2"]);
        // Memory that only a first use takes is not counted for the pool.
        holder.tell(&format!("take {used}"), "taken");
        holder.tell("free", "freed");
        holder.falls_to(START_MIB);
        let most = holder.resident_mib() + MORE_MIB;
        for _ in 0..2 {
            holder.tell(&format!("write {knob} {pages}"), "written");
            holder.tell(&format!("show {knob}"), pages);
            holder.tell(&format!("write {knob} 0"), "written");
            holder.tell(&format!("show {knob}"), "0");
            holder.falls_to(most);
            // A program writes the descriptors of all pages that it takes.
            holder.tell(&format!("take {used}"), "taken");
            holder.tell("free", "freed");
            holder.falls_to(most);
        }
    }
}

#[test]
fn a_mode_that_is_set_holds_for_what_is_free_already() {
    let mut holder = Holder::start(&["-m", "512M", "-c", "2", "--give-back", "off"]);
    // The control socket exists by then.
    holder.tell("take 1", "taken");
    holder.tell("free", "freed");
    for mode in ["shared", "hinting", "shared", "reporting", "shared"] {
        switch(&holder.guest, "off");
        holder.tell("take 200", "taken");
        holder.tell("free", "freed");
        thread::sleep(Duration::from_millis(500));
        assert!(holder.resident_mib() >= 200, "nothing goes back");
        switch(&holder.guest, mode);
        holder.falls_to(START_MIB);
    }
}

#[test]
fn a_guest_whose_exchanges_could_be_lost_refuses_the_mode() {
    let one_cpu = "-m 128M -c 1 --accel tcg --give-back reporting";
    for options in [one_cpu, "-m 128M --icount"] {
        let options: Vec<_> = options.split(' ').collect();
        let mut holder = Holder::start(&options);
        holder.tell("take 10", "taken");
        let output = ebb::again_if_late(|| set(&holder.guest, "give-back=shared"));
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{err}");
        assert!(
            err.contains("--give-back shared") && err.contains("not atomic"),
            "{err}"
        );
    }
}

/// Returns how often ebb's threads for reclaim and rings, and QEMU's threads, have gone to sleep.
fn sleeps(guest: &Guest) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", guest.child.id())).expect("ebb runs");
    let reclaim = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let status = fs::read_to_string(path.join("status")).ok()?;
        let line = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        (name.trim() == "reclaim").then(|| line.split_whitespace().last()?.parse::<u64>().ok())?
    });
    let counts: Vec<u64> = reclaim.collect();
    assert_eq!(counts.len(), 1, "one thread takes");
    counts[0]
}

#[test]
fn an_idle_guest_wakes_no_thread() {
    let mut holder = holder(&["-m", "256M", "-c", "2"]);
    holder.tell("take 100", "taken");
    holder.tell("free", "freed");
    holder.falls_to(START_MIB);
    // Fragmented memory is compacted once the guest has been idle for a while, and taken then.
    // After that nothing happens.
    let rests = || {
        let before = sleeps(&holder.guest);
        thread::sleep(Duration::from_secs(5));
        sleeps(&holder.guest) == before
    };
    assert!(
        (0..60).any(|_| rests()),
        "something wakes it again and again"
    );
    let before = sleeps(&holder.guest);
    holder.tell("take 100", "taken");
    holder.tell("free", "freed");
    holder.falls_to(START_MIB);
    assert_ne!(sleeps(&holder.guest), before, "it is called");
}

/// Runs a storm that verifies its memory, while the host takes the memory that it frees. On a busy
/// host, a short storm may see too few switches, so a longer one follows.
fn storm(cpus: &str, seed: &str, modes: &[&str]) {
    let enough = ["20s", "200s"]
        .into_iter()
        .any(|time| switches(cpus, seed, time, modes) >= 6);
    assert!(enough, "too few switches");
}

/// Runs a storm for `time`, and returns the number of switches of the mode.
fn switches(cpus: &str, seed: &str, time: &str, modes: &[&str]) -> u32 {
    let options = ["-m", "256M", "-c", cpus, "--give-back", "shared"];
    let mut command = ebb::command(900, &options);
    command
        .arg("--")
        .arg(programs::path("rust-vmstorm"))
        .args([seed, time])
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit());
    let mut guest = Guest::start(&mut command);
    let mut switches = 0_u32;
    for mode in modes.iter().cycle() {
        thread::sleep(Duration::from_millis(150));
        if let Some(status) = guest.child.try_wait().expect("a child") {
            assert!(status.success(), "{status}");
            break;
        }
        // This fails if the socket does not exist yet or any more, or if the storm leaves the guest
        // no time.
        switches += u32::from(set(&guest, &format!("give-back={mode}")).status.success());
    }
    switches
}

#[test]
#[ignore = "long: make test-long"]
fn a_storm_on_one_cpu_loses_nothing() {
    storm("1", "43", &["shared"]);
}

#[test]
#[ignore = "long: make test-long"]
fn a_storm_loses_nothing_while_modes_change() {
    storm(
        "2",
        "44",
        &["shared", "off", "hinting", "shared", "reporting", "shared"],
    );
}
