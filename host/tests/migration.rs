//! A guest of QEMU's is migrated while it reads and writes a disk of `ebb blk serve`, and what the
//! back-end wrote to its memory is there where it goes.
//!
//! Where Debian's kernel cannot be had, this says so and does nothing. Not run with the other tests:
//! three guests that QEMU 7.2 migrated under TCG crashed where they came, and whose fault that is was
//! not found out.

#[path = "parts/disks.rs"]
mod parts;

use parts::{Killed, Scratch};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any step takes on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(240);
const MIB: usize = 1 << 20;
/// The disk has areas of this size. The first ones are read in turn, so that what a page of the
/// guest's memory held before is never what it is to hold next; the last one is written.
const AREA: usize = 8 * MIB;
const READ_AREAS: usize = 4;

/// Linux is not to clear pages that it is about to read into: that would mark them, too.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 init_on_alloc=0";

/// What the guest does. It fills its page cache from the disk, which only the back-end writes to,
/// and looks at what is there some time later: a page that was not marked is an old one then.
const INIT: &str = r#"#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
sum() { dd if=/dev/vda bs=1M skip=$1 count=8 2>/dev/null | sha256sum; }
# Linux forgets the cache of a disk that nobody has open.
exec 3< /dev/vda
echo "begun"
(read line < /dev/console; : > /tmp/end) &
pass=0 written=
while :; do
    echo 3 > /proc/sys/vm/drop_caches
    area=$((pass % 4))
    expected=$(sed -n $((area + 1))p /expected)
    [ "$(sum $((area * 8)))" = "$expected" ] || echo "BAD what was read in pass $pass"
    [ -z "$written" ] || [ "$(sum 32)" = "$written" ] || echo "BAD what was written before pass $pass"
    pass=$((pass + 1))
    yes "this is pass $pass" | head -c 8388608 > /tmp/new
    dd if=/tmp/new of=/dev/vda bs=64k seek=512 conv=fsync 2>/dev/null || echo "BAD write"
    written=$(sha256sum < /tmp/new)
    [ "$(sum $((area * 8)))" = "$expected" ] || echo "BAD what was kept in pass $pass"
    echo "pass $pass"
    [ -e /tmp/end ] && break
done
echo 3 > /proc/sys/vm/drop_caches
echo "whole $(sha256sum < /dev/vda)"
poweroff -f
"#;

fn sum(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("coreutils");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(bytes).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Debian's kernel and its drivers, unpacked.
fn linux() -> Option<PathBuf> {
    let fetch = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blk/lab/fetch");
    let output = Command::new(fetch).arg("linux").output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert!(
            said.contains("cannot download") || said.contains("apt knows no package"),
            "only a kernel that cannot be fetched is an excuse: {said}"
        );
        eprintln!("SKIPPED, there is no stock kernel: {said}");
        return None;
    }
    let folder = String::from_utf8_lossy(&output.stdout);
    Some(PathBuf::from(folder.trim()))
}

fn only(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).expect("it was fetched");
    entries.next().expect("something").expect("readable").path()
}

/// Makes the guest's root: a shell, the drivers, and what the disk is to hold.
fn archive(scratch: &Scratch, linux: &Path, expected: &str) -> String {
    let drivers = only(&linux.join("lib/modules")).join("kernel/drivers");
    let root = scratch.0.join("root");
    for folder in ["bin", "modules", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(folder)).expect("a writable place");
    }
    let mut order = String::new();
    for module in [
        "virtio/virtio_ring",
        "virtio/virtio",
        "virtio/virtio_pci_modern_dev",
        "virtio/virtio_pci_legacy_dev",
        "virtio/virtio_pci",
        "block/virtio_blk",
    ] {
        let from = drivers.join(format!("{module}.ko"));
        let name = module.rsplit('/').next().expect("a name");
        fs::copy(from, root.join(format!("modules/{name}.ko"))).expect("a driver");
        order.push_str(name);
        order.push('\n');
    }
    fs::write(root.join("modules/order"), order).expect("room");
    fs::write(root.join("expected"), expected).expect("room");
    fs::write(root.join("init"), INIT).expect("room");
    let path = scratch.path("root.cpio");
    let script = "cp $(command -v busybox) bin && bin/busybox --install -s bin 2>/dev/null
        cd bin && for link in *; do [ -L $link ] && ln -sf busybox $link; done; cd ..
        chmod 755 init && find . | busybox cpio -o -H newc > $0 2>/dev/null";
    let made = Command::new("sh")
        .args(["-c", script, &path])
        .current_dir(&root)
        .status();
    assert!(made.expect("a shell").success(), "no archive");
    path
}

/// A back-end of its own, in a process of its own, as on another host.
fn serve(scratch: &Scratch, host: &str, disk: &str) -> Killed {
    let folder = scratch.path(host);
    fs::create_dir_all(&folder).expect("a writable place");
    let server = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["blk", "serve", "--disk", disk, "--socket-dir", &folder])
        .args(["--control", &format!("{folder}/control")])
        .stdout(Stdio::null())
        .spawn();
    let server = Killed(server.expect("ebb starts"));
    wait_for(&format!("{folder}/data.sock"));
    server
}

fn wait_for(path: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !Path::new(path).exists() {
        assert!(Instant::now() < deadline, "{path} never came");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A QEMU on one of the hosts, with what its guest says and its monitor.
struct Machine {
    _process: Killed,
    monitor: BufReader<UnixStream>,
    serial: UnixStream,
    said: String,
}

impl Machine {
    fn start(scratch: &Scratch, host: &str, linux: &Path, root: &str, incoming: bool) -> Self {
        let folder = scratch.path(host);
        let version = only(&linux.join("lib/modules"));
        let version = version.file_name().expect("a name").to_string_lossy();
        let kernel = linux.join(format!("boot/vmlinuz-{version}"));
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args("-nodefaults -no-user-config -no-reboot -display none -S".split(' '))
            .args("-machine q35,memory-backend=ram,smm=off,sata=off,usb=off".split(' '))
            .args("-accel tcg,thread=multi -cpu max -smp 2 -m 256M".split(' '))
            .args("-object memory-backend-memfd,id=ram,size=256M,share=on".split(' '))
            .arg("-kernel")
            .arg(kernel)
            .args(["-initrd", root, "-append", KERNEL_ARGUMENTS])
            .args([
                "-chardev",
                &format!("socket,id=s,path={folder}/serial,server=on,wait=off"),
            ])
            .args(["-serial", "chardev:s"])
            .args(["-qmp", &format!("unix:{folder}/qmp,server=on,wait=off")])
            .args(["-chardev", &format!("socket,id=d,path={folder}/data.sock")])
            .args([
                "-device",
                "vhost-user-blk-pci,chardev=d,num-queues=2,disable-legacy=on",
            ])
            .stdin(Stdio::null());
        if incoming {
            qemu.args(["-incoming", "defer"]);
        }
        let process = Killed(qemu.spawn().expect("no QEMU here: make deps installs it"));
        let connect = |name: &str| {
            wait_for(&format!("{folder}/{name}"));
            let deadline = Instant::now() + PATIENCE;
            loop {
                match UnixStream::connect(format!("{folder}/{name}")) {
                    Ok(stream) => return stream,
                    Err(error) => assert!(Instant::now() < deadline, "{name}: {error}"),
                }
                thread::sleep(Duration::from_millis(10));
            }
        };
        let (serial, monitor) = (connect("serial"), connect("qmp"));
        monitor.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        serial
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a timeout");
        let mut machine = Self {
            _process: process,
            monitor: BufReader::new(monitor),
            serial,
            said: String::new(),
        };
        machine.ask("qmp_capabilities", json!({}));
        machine
    }

    /// Has the monitor do something.
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

    /// Listens to the guest for a moment.
    fn hear(&mut self) {
        let mut buffer = [0; 4096];
        // An end and a timeout look alike: what counts is what was said.
        let count = self.serial.read(&mut buffer).unwrap_or(0);
        let said = String::from_utf8_lossy(&buffer[..count]);
        self.said.push_str(&said);
        assert!(!self.said.contains("BAD"), "{}", self.said);
    }

    /// Listens to the guest, until `enough` of what it said.
    fn listen(&mut self, what: &str, enough: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !enough(&self.said) {
            self.hear();
            assert!(Instant::now() < deadline, "{what}: {}", self.said);
        }
    }

    fn passes(said: &str) -> usize {
        said.lines()
            .filter(|line| line.starts_with("pass "))
            .count()
    }

    /// Sends the guest to another machine, slowly until it has done a few passes with its memory
    /// copied once, and waits until it has gone.
    fn migrate(&mut self, to: &mut Self, path: &str) {
        let uri = json!({"uri": format!("unix:{path}")});
        let limits = |downtime_ms: u64, bandwidth: usize| json!({"downtime-limit": downtime_ms, "max-bandwidth": bandwidth});
        to.ask("migrate-incoming", uri.clone());
        self.ask("migrate-set-parameters", limits(1, 24 * MIB));
        self.ask("migrate", uri);
        let (mut enough, mut slow) = (None, true);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let told = self.ask("query-migrate", json!({}));
            match told["status"].as_str() {
                Some("completed") => {
                    println!("{}", told["ram"]);
                    return;
                }
                Some("failed" | "cancelled") => panic!("{told}"),
                _ => assert!(Instant::now() < deadline, "{told}"),
            }
            // What it says must not hold it up.
            self.hear();
            // Only once all of its memory was copied do marks matter. From then on it is copied so
            // slowly that the last moment would have to be shorter than a page takes.
            if enough.is_none() && told["ram"]["dirty-sync-count"].as_u64() >= Some(2) {
                self.ask("migrate-set-parameters", limits(1, 3 * MIB));
                enough = Some(Self::passes(&self.said) + 3);
            }
            if slow && enough.is_some_and(|enough| Self::passes(&self.said) >= enough) {
                slow = false;
                self.ask("migrate-set-parameters", limits(2000, 1 << 30));
            }
        }
    }
}

#[test]
#[ignore = "some guests crash where they come: make test-migration"]
fn a_guest_migrates_while_its_disk_is_busy() {
    let Some(linux) = linux() else { return };
    let scratch = Scratch::new("migration");
    let mut state = 1_u32;
    let old: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take((READ_AREAS + 1) * AREA)
    .collect();
    let image = scratch.file("disk.img", &old);
    let sums: String = old.chunks(AREA).map(|area| sum(area) + "\n").collect();
    let root = archive(&scratch, &linux, &sums);
    let source = serve(&scratch, "here", &format!("data={image}"));
    let mut here = Machine::start(&scratch, "here", &linux, &root, false);
    here.ask("cont", json!({}));
    here.listen("it begins", |said| Machine::passes(said) >= 2);
    let target = serve(&scratch, "there", &format!("data={image},incoming"));
    let mut there = Machine::start(&scratch, "there", &linux, &root, true);
    here.migrate(&mut there, &scratch.path("wire"));
    there.ask("cont", json!({}));
    there.listen("it goes on", |said| Machine::passes(said) >= 3);
    writeln!(there.serial, "end").expect("QEMU listens");
    let whole = |said: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix("whole "));
        line.map(|sum| sum.trim().to_owned())
    };
    there.listen("it ends", |said| {
        whole(said).is_some() && said.ends_with('\n')
    });
    let told = whole(&there.said).expect("heard");
    // A third back-end is kept away from what two have handed on.
    let third = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["blk", "serve", "--disk", &format!("data={image}")])
        .args(["--control", &scratch.path("third")])
        .output()
        .expect("ebb starts");
    let refused = String::from_utf8_lossy(&third.stderr);
    assert!(refused.contains("in use by another back-end"), "{refused}");
    drop((here, there, source, target));
    let found = fs::read(&image).expect("the image is there");
    assert_eq!(told, sum(&found), "what the guest sees at its end");
    let read = READ_AREAS * AREA;
    assert!(found[..read] == old[..read], "what was only read");
    assert!(found[read..].starts_with(b"this is pass "));
}
