//! Tests of the memory that QEMU needs in addition to its guest's memory.

use crate::guest::ebb;
use crate::running::{eventually, qemu_of};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

const MIB: u64 = 1 << 20;
/// An idle QEMU holds 21 MiB.
const IDLE_MAX: u64 = 32 * MIB;
/// After the guest's work here, QEMU holds 54 MiB. Without a limit for translated code, it would
/// hold more than 200.
const BUSY_MAX: u64 = 90 * MIB;

/// Returns the private anonymous memory of a process in bytes.
fn own_bytes(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it runs");
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:"));
    let kibibytes = line.and_then(|line| line.split_ascii_whitespace().nth(1));
    kibibytes.and_then(|n| n.parse::<u64>().ok()).expect("KiB") << 10
}

/// Returns the resident bytes of the files from which the guest booted, by their names.
fn boot_files(pid: u32) -> Vec<(String, u64)> {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let mut files: Vec<_> = folder
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = fs::read_link(&path).ok()?.to_string_lossy().into_owned();
            let ours = name.contains("ebb-kernel") || name.contains("ebb-initramfs");
            ours.then(|| Some((name, fs::metadata(&path).ok()?.blocks() * 512)))?
        })
        .collect();
    files.sort();
    files.dedup();
    files
}

#[test]
fn qemu_holds_little_beside_the_guest() {
    let script = "echo idle; read; i=0; while [ $i -lt 200 ]; do d=/tmp/$((i % 20)); mkdir -p $d; \
        cp /bin/busybox $d/; $d/busybox ls -l /bin | $d/busybox sort > $d/list; i=$((i + 1)); done; \
        echo busy; read";
    let mut child = ebb(&["--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut input = child.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert_eq!(line(), "idle");
    let qemu = qemu_of(&child).expect("it runs");
    let files = eventually("giving the files back", || {
        let files = boot_files(qemu);
        files.iter().all(|(_, bytes)| *bytes == 0).then_some(files)
    });
    assert_eq!(files.len(), 2, "{files:?}");
    let idle = own_bytes(qemu);
    assert!(idle <= IDLE_MAX, "{idle} bytes, idle");
    std::io::Write::write_all(&mut input, b"\n").expect("it reads");
    assert_eq!(line(), "busy");
    let busy = own_bytes(qemu);
    assert!(busy <= BUSY_MAX, "{busy} bytes after 200 programs");
    drop(input);
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}
