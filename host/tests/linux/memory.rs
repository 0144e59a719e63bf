//! Tests that memory which a program frees leaves the host after some time, and that memory which
//! is never used is never resident.

use crate::ebb::{self, Guest, Holder};
use crate::programs;
use crate::reclaim::reclaim;
use crate::scratch::Scratch;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// The resident memory in MiB of a guest whose program has just started.
const START_MIB: u64 = 16;
/// A time that is longer than two passes of the reporter.
const TWO_PASSES: Duration = Duration::from_secs(6);

/// The guest's counter of reports of free memory.
const REPORTS: &str = "page_reporting_requests";

#[test]
fn freed_memory_leaves_the_host_again_and_again() {
    for mode in ["shared", "reporting"] {
        let mut holder = Holder::start(&["-m", "512M", "-c", "2", "--give-back", mode]);
        for round in 0..3 {
            let right = |&(resident, reported): &(u64, bool)| {
                resident >= 300 && reported == (mode == "reporting")
            };
            let (resident, reported) = ebb::while_the_host_has_memory(right, || {
                let before = holder.counter(REPORTS);
                holder.tell("take 300", "taken");
                let resident = holder.resident_mib();
                holder.tell("free", "freed");
                holder.falls_to(START_MIB);
                (resident, holder.counter(REPORTS) > before)
            });
            assert!(resident >= 300, "{mode}, round {round}");
            assert_eq!(reported, mode == "reporting", "{mode}, round {round}");
        }
        holder.ask("show /proc/meminfo");
    }
}

#[test]
fn small_pieces_come_back_once_the_order_is_small() {
    let mut holder = Holder::start(&["-m", "512M", "-c", "2", "--give-back", "reporting"]);
    // No block becomes free because its pages are moved.
    holder.tell("write /proc/sys/vm/compaction_proactiveness 0", "written");
    let order = "/sys/module/page_reporting/parameters/page_reporting_order";
    holder.tell(&format!("show {order}"), "9");
    holder.tell(&format!("write {order} 0"), "written");
    holder.tell(&format!("show {order}"), "0");
    holder.tell("take 200", "taken");
    // Every other page is freed, so no block of 2 MiB becomes free.
    holder.tell("sparse", "freed");
    holder.falls_to(100 + START_MIB + 8);
    assert!(
        holder.resident_mib() >= 100,
        "{} MiB",
        holder.resident_mib()
    );
    assert!(holder.counter(REPORTS) > 0);
    holder.tell("free", "freed");
    holder.falls_to(START_MIB);
}

/// Shows that fragmented free memory goes back, because the used pages between the fragments are
/// migrated.
#[test]
fn what_is_free_in_pieces_comes_back() {
    // With one CPU, the migration itself must not count as work that delays it.
    for cpus in ["1", "2"] {
        let mut holder = Holder::start(&["-m", "512M", "-c", cpus]);
        holder.tell("take 200", "taken");
        holder.tell("sparse", "freed");
        holder.falls_to(100 + START_MIB + 8);
        assert!(
            holder.resident_mib() >= 100,
            "{} MiB",
            holder.resident_mib()
        );
        holder.tell("free", "freed");
        holder.falls_to(START_MIB);
    }
}

#[test]
fn without_reporting_it_stays() {
    let mut holder = Holder::start(&["-m", "512M", "-c", "2", "--give-back", "off"]);
    holder.tell("take 200", "taken");
    holder.tell("free", "freed");
    thread::sleep(TWO_PASSES);
    assert!(
        holder.resident_mib() >= 200,
        "{} MiB",
        holder.resident_mib()
    );
    // The same memory is used again, so resident memory does not grow.
    holder.tell("take 200", "taken");
    assert!(
        holder.resident_mib() < 200 + START_MIB + 8,
        "{} MiB",
        holder.resident_mib()
    );
}

#[test]
fn a_large_guest_starts_as_small_as_a_small_one() {
    for memory in ["64M", "1G", "16G", "64G"] {
        for machine in ["microvm", "q35"] {
            let mut holder = Holder::start(&["-m", memory, "-c", "2", "--machine", machine]);
            let answer = holder.ask("show /proc/meminfo");
            assert!(answer.starts_with("MemTotal:"), "{answer}");
            let resident = holder.resident_mib();
            assert!(
                resident <= START_MIB,
                "{memory} on {machine}: {resident} MiB"
            );
            holder.tell("take 20", "taken");
        }
    }
}

#[test]
#[ignore = "long: make test-long"]
fn memory_above_the_hole_is_memory() {
    let mut holder = Holder::start(&["-m", "5G", "-c", "2"]);
    holder.tell("take 4500", "taken");
    assert!(holder.resident_mib() >= 4500);
    holder.tell("free", "freed");
    holder.falls_to(START_MIB + 51);
}

#[test]
fn the_program_that_takes_it_all_is_ended_by_name() {
    let program = programs::text(programs::path("out_of_memory"));
    let outcome = ebb::run(300, &["-m", "128M", "-c", "2", "--verbose"], &[&program]);
    outcome.expect(137);
    let log = outcome.err();
    assert!(log.contains("Out of memory: Killed process"), "{log}");
    assert!(log.contains("(out_of_memory)"), "{log}");
}

#[test]
fn only_the_program_that_takes_it_all_is_ended() {
    let program = programs::text(programs::path("out_of_memory"));
    let scratch = Scratch::new("oom-record");
    let record = scratch.path("record");
    let options = ["-m", "128M", "-c", "2", "--summary", "--record", &record];
    let outcome = ebb::run(300, &options, &[&program, "child"]);
    let expected = "hog was ended by signal 9\n".repeat(3)
        + "hog of shared memory was ended by signal 9\n\
           kill(sibling, 0) = 0\n\
           sibling was ended by signal 15\n\
           kept: yes\n";
    assert_eq!(outcome.expect(0).out(), expected);
    // The program continued, and the end of its children is reported nevertheless.
    let summary = outcome.err();
    assert!(
        summary.contains("out of memory: the guest killed 4 processes"),
        "{summary}"
    );
    let text = std::fs::read_to_string(&record).expect("the record");
    let record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let oom = &record["summary"]["oom"];
    let last = oom["last"].as_array().expect("victims");
    assert_eq!((&oom["kills"], last.len()), (&4.into(), 4), "{oom}");
    for killed in last {
        assert_eq!(killed["name"], "out_of_memory");
        let resident = killed["resident_bytes"].as_u64().expect("bytes");
        assert!(((64 << 20)..=(128 << 20)).contains(&resident), "{oom}");
    }
}

#[test]
fn a_full_file_system_can_be_emptied_again() {
    let program = programs::text(programs::path("out_of_memory"));
    let outcome = ebb::run(300, &["-m", "128M", "-c", "2"], &[&program, "files"]);
    let out = outcome.expect(0).out();
    assert!(out.ends_with("3 rounds\n"), "{out}");
}

#[test]
fn nothing_is_lost_when_programs_end() {
    // Memory that these programs leak would be missing from MemFree afterwards.
    let names = [
        "fork_storm",
        "thread_storm",
        "memory",
        "shared",
        "files",
        "pipes",
        "signals",
    ];
    let mut options: Vec<String> = ["-m", "512M", "-c", "2", "--busybox"]
        .map(str::to_owned)
        .to_vec();
    for name in names {
        options.push("--file".to_owned());
        options.push(format!(
            "{}:/cases/{name}",
            programs::text(programs::path(name))
        ));
    }
    let script = format!(
        "cd /tmp; while read what; do \
         [ $what = look ] || for n in {}; do /cases/$n > /dev/null 2>&1 < /dev/null; done; \
         rm -rf /tmp/*; sync; sleep 0.2; cat /proc/meminfo; echo; done",
        names.join(" ")
    );
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut command = ebb::command(900, &options);
    command.args(["--", "sh", "-c", &script]);
    command.stdin(Stdio::piped()).stderr(Stdio::inherit());
    let mut guest = Guest::start(&mut command);
    let mut stdin = guest.child.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(guest.child.stdout.take().expect("it is piped")).lines();
    // Has the guest do this, and then show its memory.
    let mut shown_after = |what: &str| -> String {
        writeln!(stdin, "{what}").expect("the guest reads");
        let lines = lines.by_ref().map(|line| line.expect("text"));
        let shown: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        assert!(!shown.is_empty(), "the guest ended instead of doing {what}");
        shown.join("\n") + "\n"
    };
    // Of several looks the best one counts: what has ended may take a moment to be freed.
    let mut five_looks = |what: &str| -> String {
        let whats = [what, "look", "look", "look", "look"];
        whats.map(&mut shown_after).concat()
    };
    five_looks("look");
    // The kernel's thread that serves the host's requests exists from the first one on. On a host
    // under pressure that may come at any time.
    let asked = reclaim(&guest, &["--all"]);
    assert!(asked.status.success(), "{asked:?}");
    let (before, first) = (five_looks("look"), five_looks("all"));
    shown_after("all");
    let mut last = shown_after("all");
    // Each CPU caches up to 256 KiB of free memory, which MemFree does not count.
    let free = |looks: &str| looks_at(looks, "MemFree").max().expect("a look");
    // These fields count single frames. A few pages depend on what the shell does at the moment.
    let held = |looks: &str| -> i64 {
        ["Slab", "KernelStack", "PageTables", "VmallocUsed"]
            .iter()
            .map(|field| looks_at(looks, field).min().expect("a look"))
            .sum()
    };
    let start = Instant::now();
    loop {
        let lost = free(&first) - free(&last);
        let (after_first, after_last) = (held(&first) - held(&before), held(&last) - held(&before));
        if lost < 512 && after_last <= after_first + 32 && after_last <= 128 {
            break;
        }
        assert!(
            start.elapsed() < ebb::TIMEOUT,
            "MemFree fell by {lost} KiB over two rounds; the kernel holds {after_first} KiB more \
             after one round, {after_last} after three: {before}\n{first}\n{last}"
        );
        last += &shown_after("look");
    }
    drop(stdin);
    assert!(guest.child.wait().expect("a child").success());
}

/// Returns the values in KiB of a field in several copies of `/proc/meminfo`.
fn looks_at<'a>(looks: &'a str, field: &'a str) -> impl Iterator<Item = i64> + 'a {
    looks.lines().filter_map(move |line| {
        let value = line.strip_prefix(field)?.strip_prefix(':')?.trim();
        value.strip_suffix(" kB")?.parse().ok()
    })
}
