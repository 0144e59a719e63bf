//! What QEMU costs beside its guest's memory.

use crate::guest::ebb;
use crate::running::{eventually, qemu_of};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

const MIB: u64 = 1 << 20;
/// Idle, it holds 21 MiB.
const IDLE_MAX: u64 = 32 * MIB;
/// After what the guest does here, 54 MiB; without a limit to what it keeps translated, more than 200.
const BUSY_MAX: u64 = 90 * MIB;

/// Bytes that a process shares with nobody and with no file.
fn own_bytes(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it runs");
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:"));
    let kibibytes = line.and_then(|line| line.split_ascii_whitespace().nth(1));
    kibibytes.and_then(|n| n.parse::<u64>().ok()).expect("KiB") << 10
}

/// Bytes of the host's memory in the files that the guest booted from, by their names.
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
