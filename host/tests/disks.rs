//! Tests of `ebb run --disk` on both kernels: the bytes that a guest writes are in the image and
//! nowhere else.
//!
//! If Debian's kernel is not available, its half prints that and does nothing.

#[path = "parts/disks.rs"]
mod parts;

use parts::{Killed, Scratch};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The time limit of a guest in seconds, more than any guest here needs on a busy machine.
const TIMEOUT_S: &str = "600";
const MIB: usize = 1 << 20;

/// A kernel and the memory of its guest.
#[derive(Copy, Clone, Debug)]
struct Kernel {
    name: &'static str,
    memory: &'static str,
}

const EBB: Kernel = Kernel {
    name: "ebb",
    memory: "128M",
};
const LINUX: Kernel = Kernel {
    name: "linux",
    memory: "320M",
};

/// Returns the kernels that are available.
fn kernels() -> Vec<Kernel> {
    static STOCK: OnceLock<bool> = OnceLock::new();
    let stock = *STOCK.get_or_init(|| {
        let output = run(LINUX, &["--print-qemu"], "true");
        let said = text(&output.stderr);
        assert!(
            output.status.success() || said.contains("cannot fetch Debian's kernel"),
            "only a kernel that cannot be fetched is an excuse: {said}"
        );
        if !output.status.success() {
            eprintln!("SKIPPED on Linux, there is no stock kernel: {said}");
        }
        output.status.success()
    });
    [EBB].into_iter().chain(stock.then_some(LINUX)).collect()
}

fn ebb(kernel: Kernel, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command
        .args([
            "run",
            "--kernel",
            kernel.name,
            "--accel",
            "tcg",
            "--root",
            "none",
        ])
        .args(["-m", kernel.memory, "-c", "2", "--timeout", TIMEOUT_S])
        .args(options)
        .env_remove("EBB_KERNEL_IMAGE")
        .stdin(Stdio::null());
    command
}

/// Runs a shell script in a guest.
fn run(kernel: Kernel, options: &[&str], script: &str) -> Output {
    ebb(kernel, options)
        .args(["--", "sh", "-c", script])
        .output()
        .expect("ebb starts")
}

/// Returns the output of a script that must succeed.
fn said(kernel: Kernel, options: &[&str], script: &str) -> String {
    let output = run(kernel, options, script);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{kernel:?}: {}\n{stdout}\n{stderr}",
        output.status
    );
    stdout
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns bytes in which a lost, doubled or moved part is detected.
fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len);
    for _ in 0..len {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes.push(state.to_le_bytes()[1]);
    }
    bytes
}

/// Compares the image with `expected` and reports only the first difference.
fn assert_same(image: &str, expected: &[u8], what: &str) {
    let found = fs::read(image).expect("the image is there");
    assert_eq!(found.len(), expected.len(), "{what}");
    let first = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(first, None, "{what}: the first byte that differs");
}

#[test]
fn what_is_written_is_read_again_and_in_the_image() {
    let scratch = Scratch::new("written");
    let old = pattern(1, 16 * MIB);
    let new = pattern(2, 5 * MIB + 700);
    let packed = format!("{}:/new", scratch.file("new", &new));
    // Writes in the middle of a page with an odd size, then past the cache.
    let script = "set -e
        [ -b /dev/vda ]
        cat /dev/vda | sha256sum
        dd if=/new of=/dev/vda bs=7001 seek=99 conv=notrunc,fsync 2>/dev/null
        tail -c +693100 /dev/vda | head -c $(stat -c %s /new) | cmp - /new
        echo 3 > /proc/sys/vm/drop_caches
        tail -c +693100 /dev/vda | head -c $(stat -c %s /new) | cmp - /new
        dd if=/new of=/dev/vda bs=64k count=16 seek=128 oflag=direct conv=notrunc 2>/dev/null
        dd if=/dev/vda bs=64k count=16 skip=128 iflag=direct 2>/dev/null | cmp -n 1048576 - /new
        sha256sum < /dev/vda
        sync; echo done";
    for kernel in kernels() {
        let image = scratch.file("disk.img", &old);
        let said = said(kernel, &["--disk", &image, "--file", &packed], script);
        let mut expected = old.clone();
        expected[99 * 7001..][..new.len()].copy_from_slice(&new);
        expected[128 << 16..][..MIB].copy_from_slice(&new[..MIB]);
        assert_same(&image, &expected, kernel.name);
        let sums: Vec<&str> = said
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let sum = |bytes: &[u8]| {
            let path = scratch.file("sum", bytes);
            let output = Command::new("sha256sum")
                .arg(path)
                .output()
                .expect("coreutils");
            text(&output.stdout)[..64].to_owned()
        };
        assert_eq!(sums, [&*sum(&old), &*sum(&expected), "done"], "{kernel:?}");
    }
}

#[test]
fn what_was_not_synchronized_is_in_the_image_when_the_program_has_ended() {
    let scratch = Scratch::new("ended");
    // Writes more than the guest may have dirty at a time, and more than its memory.
    let new = pattern(3, MIB);
    let packed = format!("{}:/new", scratch.file("new", &new));
    let script = "for n in $(seq 0 191); do cat /new; done > /dev/vda";
    for kernel in kernels() {
        let image = scratch.file("disk.img", &[]);
        let file = fs::OpenOptions::new().write(true).open(&image);
        file.expect("just made").set_len(192 << 20).expect("room");
        said(kernel, &["--disk", &image, "--file", &packed], script);
        let found = fs::read(&image).expect("the image is there");
        let wrong = found.chunks(MIB).position(|chunk| chunk != new);
        assert_eq!(wrong, None, "{kernel:?}: the first MiB that is not there");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn a_guest_whose_disk_is_larger_than_its_memory_reads_all_of_it_twice() {
    let scratch = Scratch::new("larger");
    let piece = pattern(4, MIB);
    let image = scratch.file("disk.img", &piece.repeat(200));
    let script = "set -e
        sha256sum < /dev/vda; sha256sum < /dev/vda
        awk '/^(Dirty|Writeback):/ && $2 != 0 { print \"left\", $0 }' /proc/meminfo";
    let said = said(EBB, &["--disk", &image], script);
    let sums: Vec<&str> = said.lines().collect();
    assert_eq!(sums.len(), 2, "{said}");
    assert_eq!(sums[0], sums[1]);
    let output = Command::new("sha256sum").arg(&image).output();
    let expected = text(&output.expect("coreutils").stdout);
    assert_eq!(sums[0][..64], expected[..64]);
}

#[test]
fn disks_have_their_order_sizes_and_rights() {
    let scratch = Scratch::new("order");
    let first = scratch.file("first.img", &pattern(5, MIB));
    let second = scratch.file("second.img", &pattern(6, 3 * MIB + 512));
    let options = ["--disk", &first, "--disk", &format!("{second},ro")];
    let script = "
        for disk in vda vdb vdc; do
            echo $disk $(cat /sys/block/$disk/size) $(cat /sys/block/$disk/ro) \
                $(blockdev --getsize64 /dev/$disk) $(blockdev --getro /dev/$disk) \
                $(cat /sys/block/$disk/queue/logical_block_size) $(blockdev --getss /dev/$disk)
        done
        stat -c '%F %t:%T' /dev/vda /dev/vdb
        awk 'NF == 4 && $4 ~ /^vd/ { print $3, $4 }' /proc/partitions
        echo x 2>/dev/null > /dev/vdb && echo 'wrote to a disk that is read-only'
        dd if=/dev/zero of=/dev/vdc bs=1M 2>&1 | grep -o 'No space.*'
        dd if=/dev/vdb bs=1 skip=3146240 2>/dev/null | wc -c
        dd if=/dev/vda bs=1 skip=1048576 2>/dev/null | wc -c
        true";
    for kernel in kernels() {
        let options = [&options[..], &["--disk", "ram:2M"]].concat();
        let said = said(kernel, &options, script);
        let lines: Vec<&str> = said.lines().collect();
        let numbers =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        // The block size is the one that direct I/O on the host requires.
        let block = numbers(lines[0])[5].clone();
        assert!(["512", "4096"].contains(&&*block), "{said}");
        let expected = [
            format!("vda 2048 0 1048576 0 {block} {block}"),
            "vdb 6145 1 3146240 1 512 512".into(),
            "vdc 4096 0 2097152 0 512 512".into(),
            "block special file fe:0".into(),
            "block special file fe:10".into(),
            "1024 vda".into(),
            "3072 vdb".into(),
            "2048 vdc".into(),
            "No space left on device".into(),
            "0".into(),
            "0".into(),
        ];
        assert_eq!(lines, expected, "{kernel:?}");
        assert_same(&second, &pattern(6, 3 * MIB + 512), "it is read-only");
    }
}

#[test]
fn ranges_are_discarded_and_a_machine_with_pci_has_disks_too() {
    let scratch = Scratch::new("pci");
    let old = pattern(7, 4 * MIB);
    // busybox's blkdiscard uses BLKDISCARD. A discarded part of a file reads as zeroes.
    let script = "set -e
        head -c 1048576 /dev/zero > /zero
        cat /dev/vda > /dev/null
        blkdiscard -o 1048576 -l 1048576 /dev/vda
        dd if=/dev/vda bs=64k skip=16 count=16 2>/dev/null | cmp -n 1048576 - /zero
        fallocate -l 4096 -o 3145728 /dev/vda 2>/dev/null || true
        mke2fs -F /dev/vda 1024 > /dev/null 2>&1
        dd if=/dev/vda bs=1 skip=1080 count=2 2>/dev/null | xxd -p";
    for kernel in kernels() {
        let image = scratch.file("disk.img", &old);
        let said = said(kernel, &["--disk", &image, "--machine", "q35"], script);
        assert_eq!(said, "53ef\n", "{kernel:?}");
        let image = fs::read(&image).expect("the image is there");
        assert!(image[MIB..2 * MIB].iter().all(|&byte| byte == 0));
        assert_eq!(image[3 * MIB..], old[3 * MIB..]);
        assert_eq!(image[1080..1082], [0x53, 0xef], "the magic of ext2");
    }
}

#[test]
fn images_that_are_no_disks_are_refused_by_name_and_size() {
    let scratch = Scratch::new("refused");
    let odd = scratch.file("odd.img", &[0; 1000]);
    let empty = scratch.file("empty.img", &[]);
    let missing = scratch.0.join("missing.img").display().to_string();
    let misspelt = format!("{odd},max-buffer-pages=7");
    let unwritable = scratch.file("unwritable.img", &[0; 4096]);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o444);
    fs::set_permissions(&unwritable, mode).expect("its mode");
    let five = ["--disk", "ram:1M"].repeat(5);
    for (options, words) in [
        (&["--disk", &*odd][..], [&*odd, "1000 bytes"]),
        (&["--disk", &*empty], [&*empty, "0 bytes"]),
        (&["--disk", &*missing], [&*missing, "No such file"]),
        (&["--disk", "ram:many"], ["many", "ram:many"]),
        (&["--disk", "ram:16777215T"], ["`16777215T`", "can have"]),
        (&["--disk", &*unwritable], [&*unwritable, "add `,ro`"]),
        (
            &["--disk", "ram:1M,max_buffer_pages=99999"],
            ["max_buffer_pages=99999", "16384"],
        ),
        (&["--disk", &*misspelt], [&*misspelt, "max_buffer_pages=N"]),
        (&five, ["5 disks", "up to 4"]),
    ] {
        let output = run(EBB, options, "true");
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "{options:?}");
        for word in words {
            assert!(stderr.contains(word), "{options:?}: {word} in {stderr}");
        }
    }
}

/// Returns options for a device of QEMU itself with the given properties.
fn qemus_own(block: &str, device: &str) -> Vec<String> {
    [
        "-blockdev",
        &format!("driver=null-co,node-name=n,read-zeroes=on,{block}"),
        "-device",
        &format!("virtio-blk-pci,drive=n,disable-legacy=on,{device}"),
    ]
    .map(|word| format!("--qemu-arg={word}"))
    .to_vec()
}

#[test]
fn a_device_that_says_odd_things_is_used_as_far_as_it_goes_or_named() {
    let script = "cat /sys/block/vda/size 2>&1; head -c 4096 /dev/vda 2>/dev/null | wc -c
        dd if=/dev/vda bs=512 skip=18014398507384831 2>/dev/null | wc -c";
    let run_on = |block: &str, device: &str| {
        let words = qemus_own(block, device);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = run(
            EBB,
            &[&["--verbose", "--machine", "q35"], &words[..]].concat(),
            script,
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    // The largest device that QEMU supports.
    let (said, _) = run_on("size=9223372035781033984", "num-queues=4");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines, ["18014398507384832", "4096", "512"]);
    for (device, why) in [
        ("queue-size=16", "a queue of 16 descriptors; 128 are needed"),
        (
            "logical_block_size=8192,physical_block_size=8192,min_io_size=8192",
            "blocks of 8192 bytes",
        ),
    ] {
        let (said, log) = run_on("size=1048576", device);
        assert!(said.contains("No such file"), "{said}");
        let expected = format!("vda cannot be used: {why}");
        assert!(log.contains(&expected), "{expected} in {log}");
    }
}

/// Runs a command again while a disk does not answer it within the second that it has for that.
fn until_answered(command: &mut Command) -> Output {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let output = command.output().expect("ebb starts");
        let is_late = text(&output.stderr).contains("did not answer within");
        if !is_late || Instant::now() > deadline {
            return output;
        }
    }
}

#[test]
fn a_served_disk_is_seen_and_squeezed_while_a_guest_writes_to_it() {
    let scratch = Scratch::new("served");
    let new = pattern(8, 4 * MIB + 4096);
    let packed = format!("{}:/new", scratch.file("new", &new));
    let image = scratch.file("disk.img", &vec![0; 32 * MIB]);
    let folder = scratch.0.to_str().expect("a plain path");
    let control = scratch.0.join("control").display().to_string();
    let server = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["blk", "serve", "--disk", &format!("data={image}")])
        .args(["--control", &control, "--socket-dir", folder])
        .stdout(Stdio::null())
        .spawn()
        .expect("ebb starts");
    let server = Killed(server);
    let socket = scratch.0.join("data.sock");
    let blk = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        command.arg("blk").args(words).args(["--control", &control]);
        until_answered(&mut command)
    };
    let deadline = Instant::now() + Duration::from_secs(300);
    while !blk(&["get"]).status.success() || !socket.exists() {
        assert!(Instant::now() < deadline, "no server");
        thread::sleep(Duration::from_millis(20));
    }
    let chardev = format!("--qemu-arg=socket,id=served,path={}", socket.display());
    // A confined QEMU cannot connect to a socket in the file system.
    let options = [
        "--unconfined",
        "--machine",
        "q35",
        "--qemu-arg=-chardev",
        &chardev,
    ];
    let mut guest = ebb(EBB, &options)
        .args([
            "--qemu-arg=-device",
            "--qemu-arg=vhost-user-blk-pci,chardev=served,disable-legacy=on",
        ])
        .args(["--file", &packed, "--", "sh", "-c"])
        .arg(
            "set -e
            for n in 0 1 2 3 4 5; do
                dd if=/new of=/dev/vda bs=5001 seek=$((n * 900)) conv=notrunc,fsync 2>/dev/null
                tail -c +$((n * 900 * 5001 + 1)) /dev/vda | head -c 4198400 | cmp - /new
            done
            cat",
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    // The guest stays until its input ends, so that it is seen however fast it is.
    let mut input = guest.stdin.take();
    let running = thread::spawn(move || guest.wait_with_output().expect("ebb can be waited for"));
    let (mut seen, mut squeezed) = (false, 0);
    while !running.is_finished() {
        let reports: serde_json::Value =
            serde_json::from_slice(&blk(&["get", "--json"]).stdout).expect("JSON");
        seen |= reports[0]["connected"] == true && reports[0]["requests"].as_u64() > Some(0);
        assert!(blk(&["squeeze", "--instance", "data"]).status.success());
        squeezed += 1;
        if seen {
            drop(input.take());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let output = running.join().expect("the thread does not panic");
    drop(server);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(seen && squeezed > 0, "{squeezed} squeezes");
    let found = fs::read(&image).expect("the image is there");
    for n in 0..6 {
        let end = if n == 5 { new.len() } else { 900 * 5001 };
        assert!(
            found[n * 900 * 5001..][..end.min(new.len())] == new[..end.min(new.len())],
            "{n}"
        );
    }
}

/// Builds the program in `programs/disk` as a static binary in a folder.
fn block_program(scratch: &Scratch) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/disk/block.c");
    let program = scratch.0.join("block").display().to_string();
    let output = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wno-nonnull", "-static", "-o", &program])
        .arg(source)
        .output()
        .expect("no gcc here: apt-get install gcc libc6-dev");
    assert!(output.status.success(), "{}", text(&output.stderr));
    program
}

#[test]
fn a_program_has_of_a_disk_what_linux_gives() {
    let scratch = Scratch::new("program");
    let program = block_program(&scratch);
    for kernel in kernels() {
        // Uses less memory than the size of the disk, if the kernel can run with it.
        let small = match kernel.name {
            "ebb" => ["-m", "64M"],
            _ => ["-m", kernel.memory],
        };
        let image = scratch.file("disk.img", &[]);
        let file = fs::OpenOptions::new().write(true).open(&image);
        file.expect("just made").set_len(96 << 20).expect("room");
        let output = ebb(kernel, &[&small[..], &["--disk", &image]].concat())
            .args(["--", &program, "/dev/vda"])
            .output()
            .expect("ebb starts");
        let said = text(&output.stdout);
        assert_eq!(said, "fine\n", "{kernel:?}: {}", text(&output.stderr));
        let found = fs::read(&image).expect("the image is there");
        let words = found
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let wrong = words.zip((0..).step_by(8)).find(|&(word, at)| {
            let zero = (MIB as u64..2 * MIB as u64).contains(&at);
            word != if zero { 0 } else { at }
        });
        assert_eq!(wrong, None, "{kernel:?}: a word and where it is");
    }
}

#[test]
fn a_guest_that_is_out_of_memory_writes_its_dirty_pages_and_goes_on() {
    let scratch = Scratch::new("pressure");
    let image = scratch.file("disk.img", &[]);
    let file = fs::OpenOptions::new().write(true).open(&image);
    file.expect("just made").set_len(160 << 20).expect("room");
    // Files in memory take the memory of the page cache while another process writes.
    let script = "set -e
        head -c 1048576 /dev/urandom > /tmp/piece
        (for n in $(seq 0 159); do cat /tmp/piece; done > /dev/vda) &
        for n in $(seq 1 40); do cat /tmp/piece > /tmp/file$n; done
        wait $!
        for n in $(seq 1 40); do cmp /tmp/piece /tmp/file$n; done
        sha256sum < /tmp/piece
        grep -c oom /proc/vmstat
        awk '/^oom_kill / { print $2 }' /proc/vmstat";
    let said = said(EBB, &["-m", "96M", "--disk", &image], script);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[1..], ["1", "0"], "no process was killed");
    let found = fs::read(&image).expect("the image is there");
    let output = Command::new("sha256sum")
        .arg(scratch.file("piece", &found[..MIB]))
        .output();
    assert_eq!(
        text(&output.expect("coreutils").stdout)[..64],
        lines[0][..64]
    );
    let wrong = found.chunks(MIB).position(|chunk| *chunk != found[..MIB]);
    assert_eq!(wrong, None, "the first MiB that is not there");
}

#[test]
fn the_disks_of_a_run_are_asked_and_set_from_outside() {
    let scratch = Scratch::new("asked");
    let path = scratch.0.join("runtime");
    fs::create_dir(&path).expect("a writable place");
    let blk = |words: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        command.arg("blk").args(words).env("XDG_RUNTIME_DIR", &path);
        until_answered(&mut command)
    };
    let first = "ram:8M,max_buffer_pages=5,buffer_squeeze_duration_ms=20";
    let second = "ram:4M,squeeze_hold_ms=0,ro";
    let options = ["--name", "job", "--disk", first, "--disk", second];
    let mut command = ebb(EBB, &options);
    command.args([
        "--",
        "sh",
        "-c",
        "cat /dev/vda >/dev/null; echo up; read end",
    ]);
    command.env("XDG_RUNTIME_DIR", &path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guest = Killed(command.spawn().expect("ebb starts"));
    let mut lines = BufReader::new(guest.0.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("up"));

    let deadline = Instant::now() + Duration::from_secs(300);
    while !blk(&["get", "--guest", "job"]).status.success() {
        assert!(Instant::now() < deadline, "no run listens");
        thread::sleep(Duration::from_millis(20));
    }
    let get = |words: &[&str]| -> serde_json::Value {
        let output = blk(&[&["get", "--json", "--guest"], words].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let both = get(&["job"]);
    assert_eq!(
        (&both[0]["name"], &both[1]["name"]),
        (&"disk0".into(), &"disk1".into())
    );
    assert!(both[0]["requests"].as_u64() > Some(0), "{both}");
    assert_eq!(both[0]["connected"], true);
    for (knob, values) in [
        ("max_buffer_pages", [5, 1024]),
        ("buffer_squeeze_duration_ms", [20, 10]),
        ("squeeze_hold_ms", [10_000, 0]),
    ] {
        assert_eq!([&both[0][knob], &both[1][knob]], [&values[0], &values[1]]);
    }
    assert!(
        blk(&["set", "max_buffer_pages=7", "--guest", "job"])
            .status
            .success()
    );
    let of_xen = blk(&["set", "max_persistent_grants=9", "--guest", "job"]);
    let why = text(&of_xen.stderr);
    assert!(!of_xen.status.success(), "{why}");
    assert!(
        why.contains("`max_persistent_grants=9` has no effect here"),
        "{why}"
    );
    let one = [
        "set",
        "max_buffer_pages=9",
        "--instance",
        "disk1",
        "--guest",
    ];
    let pid = guest.0.id().to_string();
    assert!(
        blk(&[&one[..], &[&pid]].concat()).status.success(),
        "by its process number"
    );
    let both = get(&["job"]);
    let pages = [&both[0]["max_buffer_pages"], &both[1]["max_buffer_pages"]];
    assert_eq!(pages, [&7, &9]);
    assert!(blk(&["squeeze", "--guest", "job"]).status.success());

    for (words, expected) in [
        (
            &["get", "--guest", "jobs"][..],
            "no guest of this user is named jobs",
        ),
        (
            &["get", "--instance=disk2", "--guest=job"],
            "there is no instance named disk2",
        ),
    ] {
        let output = blk(words);
        let stderr = text(&output.stderr);
        assert!(
            !output.status.success() && stderr.contains(expected),
            "{stderr}"
        );
    }
    drop(guest.0.stdin.take());
    assert!(guest.0.wait().expect("it ends").code().is_some());
}
