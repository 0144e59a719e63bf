//! A QEMU on one of two hosts, with its guest's memory, serial port and monitor.

use crate::parts::{Killed, Scratch};
use crate::root::Root;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// More time than any step needs on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(600);
const MIB: usize = 1 << 20;
/// The size of a page in bytes, for the guest and for QEMU.
pub(crate) const PAGE: usize = 4096;

/// Waits until a file exists that another process creates.
pub(crate) fn wait_for(path: &str) {
    let deadline = Instant::now() + TIMEOUT;
    while !Path::new(path).exists() {
        assert!(Instant::now() < deadline, "{path} never came");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) struct Machine {
    _process: Killed,
    monitor: BufReader<UnixStream>,
    serial: UnixStream,
    said: String,
    /// The memory of the guest, from guest-physical address 0 on.
    memory: File,
    bytes: usize,
}

impl Machine {
    /// Starts a machine with the given memory and stopped CPUs. If a back-end listens in the host's
    /// folder, the machine has its disk. An `incoming` machine waits for a migrated guest.
    pub(crate) fn start(
        scratch: &Scratch,
        host: &str,
        root: &Root,
        bytes: usize,
        incoming: bool,
    ) -> Self {
        let folder = scratch.path(host);
        fs::create_dir_all(&folder).expect("a writable place");
        for old in ["serial", "qmp"] {
            // A socket exists if another machine was on this host before.
            let _ = fs::remove_file(format!("{folder}/{old}"));
        }
        // QEMU inherits the memfd, so exec must not close it.
        let memory = memfd_create("guest", MemfdFlags::empty()).expect("a memfd");
        ftruncate(&memory, bytes as u64).expect("room");
        let memory = File::from(memory);
        let (at, kib) = (memory.as_raw_fd(), bytes / 1024);
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args("-nodefaults -no-user-config -no-reboot -display none -S".split(' '))
            .args("-machine q35,memory-backend=ram,smm=off,sata=off,usb=off".split(' '))
            .args("-accel tcg,thread=multi -cpu max -smp 2".split(' '))
            .args(["-m", &format!("{kib}K"), "-object"])
            .arg(format!(
                "memory-backend-file,id=ram,size={kib}K,share=on,mem-path=/proc/self/fd/{at}"
            ))
            .arg("-kernel")
            .arg(&root.kernel)
            .args(["-initrd", &root.archive, "-append", &root.arguments])
            .arg("-chardev")
            .arg(format!(
                "socket,id=s,path={folder}/serial,server=on,wait=off"
            ))
            .args(["-serial", "chardev:s"])
            .args(["-qmp", &format!("unix:{folder}/qmp,server=on,wait=off")])
            .stdin(Stdio::null());
        let disk = format!("{folder}/data.sock");
        if Path::new(&disk).exists() {
            qemu.args(["-chardev", &format!("socket,id=d,path={disk}")])
                .arg("-device")
                .arg("vhost-user-blk-pci,chardev=d,num-queues=2,disable-legacy=on");
        }
        if incoming {
            qemu.args(["-incoming", "defer"]);
        }
        let process = Killed(qemu.spawn().expect("no QEMU here: make deps installs it"));
        let connect = |name: &str| {
            wait_for(&format!("{folder}/{name}"));
            let deadline = Instant::now() + TIMEOUT;
            loop {
                match UnixStream::connect(format!("{folder}/{name}")) {
                    Ok(stream) => return stream,
                    Err(error) => assert!(Instant::now() < deadline, "{name}: {error}"),
                }
                thread::sleep(Duration::from_millis(10));
            }
        };
        let (serial, monitor) = (connect("serial"), connect("qmp"));
        monitor.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        serial
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a timeout");
        let mut machine = Self {
            _process: process,
            monitor: BufReader::new(monitor),
            serial,
            said: String::new(),
            memory,
            bytes,
        };
        machine.ask("qmp_capabilities", json!({}));
        machine
    }

    /// Sends a command to the monitor and returns the result.
    fn ask(&mut self, what: &str, arguments: Value) -> Value {
        let command = json!({"execute": what, "arguments": arguments});
        writeln!(self.monitor.get_mut(), "{command}").expect("QEMU listens");
        loop {
            let mut line = String::new();
            let read = self.monitor.read_line(&mut line).expect("QEMU answers");
            assert!(read > 0, "QEMU is gone: {what}");
            let answer: Value = serde_json::from_str(&line).expect("JSON");
            assert!(answer.get("error").is_none(), "{what}: {answer}");
            if let Some(value) = answer.get("return") {
                return value.clone();
            }
        }
    }

    /// Starts the CPUs.
    pub(crate) fn run(&mut self) {
        self.ask("cont", json!({}));
    }

    /// Sends a line to the guest.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.serial, "{line}").expect("QEMU listens");
    }

    /// Reads the guest's output for a moment.
    fn hear(&mut self) {
        let mut buffer = [0; 4096];
        // The end and a timeout are the same here. Only the output matters.
        let count = self.serial.read(&mut buffer).unwrap_or(0);
        let said = String::from_utf8_lossy(&buffer[..count]);
        self.said.push_str(&said);
        assert!(!self.said.contains("BAD"), "{}", self.said);
    }

    /// Reads the guest's output until `find` returns a value, and returns it.
    pub(crate) fn listen<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = find(&self.said) {
                return found;
            }
            self.hear();
            assert!(Instant::now() < deadline, "{what}: {}", self.said);
        }
    }

    fn passes(said: &str) -> usize {
        said.lines()
            .filter(|line| line.starts_with("pass "))
            .count()
    }

    /// Reads the guest's output until it has made `passes` more passes.
    pub(crate) fn work(&mut self, what: &str, passes: usize) {
        let enough = Self::passes(&self.said) + passes;
        self.listen(what, |said| (Self::passes(said) >= enough).then_some(()));
    }

    /// Migrates the guest to another machine. After all memory was copied once, the migration is
    /// slow until the guest has made `passes` more passes. Both machines are stopped afterwards.
    /// Returns the fingerprints of the pages that were copied first.
    pub(crate) fn migrate(&mut self, to: &mut Self, path: &str, passes: usize) -> Vec<u64> {
        let uri = json!({"uri": format!("unix:{path}")});
        let limits = |downtime_ms: u64, bandwidth: usize| json!({"downtime-limit": downtime_ms, "max-bandwidth": bandwidth});
        to.ask("migrate-incoming", uri.clone());
        self.ask("migrate-set-parameters", limits(1, 64 * MIB));
        self.ask("migrate", uri);
        let (mut copied, mut enough) = (Vec::new(), usize::MAX);
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let told = self.ask("query-migrate", json!({}));
            match told["status"].as_str() {
                Some("completed") => break,
                Some("failed" | "cancelled") => panic!("{told}"),
                _ => assert!(Instant::now() < deadline, "{told}"),
            }
            // The guest must not block because its output is not read.
            self.hear();
            // Dirty marks matter only after all memory was copied once. From then on, the copy is
            // so slow that the last phase cannot be short enough to end the migration.
            if copied.is_empty() && told["ram"]["dirty-sync-count"].as_u64() >= Some(2) {
                self.ask("migrate-set-parameters", limits(1, 3 * MIB));
                copied = to.fingerprints();
                enough = Self::passes(&self.said) + passes;
            }
            if Self::passes(&self.said) >= enough {
                enough = usize::MAX;
                self.ask("migrate-set-parameters", limits(2000, 1 << 30));
            }
        }
        assert!(!copied.is_empty(), "it was gone before it was copied once");
        while to.ask("query-status", json!({}))["status"] == "inmigrate" {
            assert!(Instant::now() < deadline, "it never arrived");
            thread::sleep(Duration::from_millis(10));
        }
        for machine in [self, to] {
            let told = machine.ask("query-status", json!({}));
            assert_eq!(told["running"], false, "{told}");
        }
        copied
    }

    /// Returns all memory of the guest. It is consistent only if the CPUs and the disk are stopped.
    pub(crate) fn pages(&self) -> Vec<u8> {
        let mut pages = vec![0; self.bytes];
        self.memory.read_exact_at(&mut pages, 0).expect("a memfd");
        pages
    }

    /// Returns a fingerprint for each page.
    fn fingerprints(&self) -> Vec<u64> {
        self.pages().chunks(PAGE).map(fingerprint).collect()
    }
}

/// Returns a number that identifies the content of a page.
pub(crate) fn fingerprint(page: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    page.hash(&mut hasher);
    hasher.finish()
}
