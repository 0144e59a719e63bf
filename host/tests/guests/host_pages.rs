//! Tests of the host pages for a guest's memory: base pages, huge pages and pages of the pool.

use crate::guest::{ebb, run};
use crate::running::{check, eventually, qemu_of};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};

const POOL: &str = "/proc/sys/vm/nr_hugepages";
/// The number of pool pages of a guest with 64 MiB.
const POOL_PAGES: u64 = 32;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `ebb` without huge pages of the host, as a service manager or a container may do.
fn without_huge_pages(mut command: Command) -> Output {
    let decline = || {
        // SAFETY: all arguments are numbers. The call changes a flag of the calling process.
        match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call, and it neither allocates nor takes a lock.
    unsafe { command.pre_exec(decline) };
    command.output().expect("ebb starts")
}

#[test]
fn huge_pages_are_taken_where_they_can_be_had() {
    for options in [&[][..], &["--host-pages", "huge"]] {
        let output = run(&[options, &["--verbose", "--", "echo", "hello"]].concat());
        check(&output, 0, "hello\n");
        let said = said(&output);
        assert!(said.contains("memory is in huge pages"), "{said}");
    }
    // A small guest would waste memory in blocks that it uses only in part.
    let output = run(&["-m", "64M", "--verbose", "--", "true"]);
    assert!(
        said(&output).contains("memory is in base pages\n"),
        "{output:?}"
    );
}

#[test]
fn base_pages_are_what_the_user_asks_for() {
    let output = run(&["--host-pages", "base", "--verbose", "--", "echo", "hello"]);
    check(&output, 0, "hello\n");
    assert!(
        said(&output).contains("memory is in base pages\n"),
        "{output:?}"
    );
}

#[test]
fn a_host_without_huge_pages_gives_base_pages_and_says_why() {
    let output = without_huge_pages(ebb(&["--verbose", "--", "echo", "hello"]));
    check(&output, 0, "hello\n");
    let told = said(&output);
    assert!(
        told.contains("memory is in base pages (no huge pages: "),
        "{told}"
    );
    let output = without_huge_pages(ebb(&["--host-pages", "huge", "--", "true"]));
    let told = said(&output);
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(
        told.contains("--host-pages huge: this host gives a guest no huge pages"),
        "{told}"
    );
}

/// Restores the size of the pool when it is dropped.
struct Pool(String);

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = fs::write(POOL, &self.0);
    }
}

#[test]
fn memory_of_the_pool_is_reserved() {
    let options = ["-m", "64M", "--host-pages", "pool", "--verbose"];
    let pool = Pool(fs::read_to_string(POOL).expect("the host has a pool"));
    let before: u64 = pool.0.trim().parse().expect("a number");
    let _ = fs::write(POOL, (before + POOL_PAGES).to_string());
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free: u64 = free.expect("a pool").trim().parse().expect("a number");
    let output = run(&[&options[..], &["--", "echo", "hello"]].concat());
    if free >= POOL_PAGES {
        check(&output, 0, "hello\n");
        assert!(
            said(&output).contains("huge pages of the host's pool"),
            "{output:?}"
        );
    }
    drop(pool);
    // A guest that is larger than any pool here.
    let output = run(&["-m", "512G", "--host-pages", "pool", "--", "true"]);
    let told = said(&output);
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(told.contains("pool of huge pages"), "{told}");
    for (more, why) in [
        (
            ["--give-back", "shared"],
            "memory from the pool is reserved",
        ),
        (["--root", "host"], "the host's kernel writes no files"),
        (
            ["--volume", "/tmp:/tmp"],
            "the host's kernel writes no files",
        ),
    ] {
        let output = run(&[&options[..], &more, &["--", "true"]].concat());
        let told = said(&output);
        assert_eq!(output.status.code(), Some(125), "{told}");
        assert!(told.contains(why), "{told}");
    }
}

/// A guest whose program has started.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Shows that QEMU's advice (`MADV_HUGEPAGE`) is allowed only for the guest's RAM, because it would
/// make unused memory of QEMU itself resident.
#[test]
fn only_the_guests_ram_is_advised_to_be_in_huge_pages() {
    let mut command = ebb(&["--host-pages", "huge", "-m", "512M", "--", "sh", "-c"]);
    let child = command
        .arg("echo ready; exec sleep 1000")
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.expect("ebb starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("a line comes");
    assert_eq!(line, "ready\n");
    let qemu = eventually("a QEMU", || qemu_of(&child));
    let _guest = Guest(child);
    let areas = fs::read_to_string(format!("/proc/{qemu}/smaps")).expect("QEMU runs");
    let mut size = "";
    let mut advised = Vec::new();
    for line in areas.lines() {
        if let Some(of_area) = line.strip_prefix("Size:") {
            size = of_area.trim();
        } else if line.starts_with("VmFlags:") && line.contains(" hg") {
            advised.push(size);
        }
    }
    assert_eq!(advised, ["524288 kB"], "{areas}");
}

/// Opens the RAM file of the guest of the QEMU process `qemu`.
fn ram_of(qemu: u32) -> fs::File {
    let folder = format!("/proc/{qemu}/fd");
    let entries = fs::read_dir(&folder).expect("QEMU runs");
    let found = entries.flatten().find_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let target = target.to_string_lossy().into_owned();
        let is_ram = target.contains("ebb-guest-ram") || target.starts_with("/#");
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true);
        is_ram.then(|| options.open(entry.path()).ok())?
    });
    found.expect("QEMU has the guest's memory open")
}

#[test]
fn memory_that_is_cut_from_outside_ends_the_guest_and_not_ebb() {
    let mut child = ebb(&[
        "--host-pages",
        "huge",
        "--",
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("ebb starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("a line comes");
    assert_eq!(line, "ready\n");
    let qemu = eventually("a QEMU", || qemu_of(&child));
    let guest = Guest(child);
    // Root of the host may do this, but QEMU may not.
    ram_of(qemu).set_len(0).expect("a file on a tmpfs");
    // ebb reads the guest's memory all the time and must survive this. The guest's own CPU faults,
    // and QEMU ends.
    let pid = guest.0.id();
    eventually("the end of QEMU", || {
        (qemu_of(&guest.0).is_none()).then_some(())
    });
    let mut guest = guest;
    let status = guest.0.wait().expect("ebb can be waited for");
    assert_eq!(status.code(), Some(125), "process {pid}: {status}");
}
