//! Tests of `ebb reclaim`, which asks a guest for memory, in the mode `off`.

use crate::ebb::{self, Guest, Holder};
use crate::scratch::Scratch;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The resident memory in MiB of a guest whose program has just started.
const START_MIB: u64 = 16;
const OFF: [&str; 6] = ["-m", "512M", "-c", "2", "--give-back", "off"];

/// Runs `ebb reclaim` with `options` for `guest`.
pub(crate) fn reclaim(guest: &Guest, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["reclaim", "--guest", &guest.child.id().to_string()]);
    command.args(options).output().expect("ebb starts")
}

/// Asserts the status of a run with `--json` and returns its output.
#[track_caller]
fn told(output: &Output, code: i32) -> serde_json::Value {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{err}");
    serde_json::from_slice(&output.stdout).expect("one object")
}

fn mib(value: &serde_json::Value) -> u64 {
    value.as_u64().expect("bytes") >> 20
}

/// Returns the name and the MiB of each step that was taken.
fn steps(told: &serde_json::Value) -> Vec<(String, u64)> {
    let steps = told["steps"].as_array().expect("steps").iter();
    steps
        .map(|step| {
            let name = step["step"].as_str().expect("a name");
            (name.to_owned(), mib(&step["reclaimed_bytes"]))
        })
        .collect()
}

#[test]
fn free_memory_goes_back_with_the_mode_off_and_pieces_by_compaction() {
    let mut holder = Holder::start(&OFF);
    holder.tell("take 200", "taken");
    holder.tell("free", "freed");
    thread::sleep(Duration::from_secs(3));
    assert!(holder.resident_mib() >= 200, "nothing goes back by itself");
    let free = told(&reclaim(&holder.guest, &["--json"]), 0);
    assert_eq!(steps(&free).len(), 1, "{free}");
    assert!(mib(&free["reclaimed_bytes"]) >= 190, "{free}");
    assert!(holder.resident_mib() <= START_MIB);
    // Every other page is freed, so there is no whole free block before compaction.
    holder.tell("take 200", "taken");
    holder.tell("sparse", "freed");
    let pieces = told(&reclaim(&holder.guest, &["--target", "80M", "--json"]), 0);
    let compacted = steps(&pieces).pop();
    assert!(
        compacted.is_some_and(|(name, mib)| name == "compact" && mib >= 80),
        "{pieces}"
    );
    // The other half is in use and must not be lost. The program continues.
    let output = reclaim(&holder.guest, &["--target", "300M", "--json"]);
    let missed = told(&output, 1);
    assert!(mib(&missed["reclaimed_bytes"]) < 20, "{missed}");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("of 300M"), "{err}");
    holder.tell("free", "freed");
    assert_eq!(reclaim(&holder.guest, &[]).status.code(), Some(0));
    assert!(holder.resident_mib() <= START_MIB);
}

#[test]
fn the_page_cache_is_dropped_before_anything_is_moved() {
    let scratch = Scratch::new("reclaim");
    let disk = scratch.path("disk.img");
    let image = std::fs::File::create(&disk).expect("a writable place");
    image.set_len(200 << 20).expect("a sparse file");
    let mut options = OFF.to_vec();
    options.extend(["--disk", &disk]);
    let mut command = ebb::command(300, &options);
    // The page cache of the disk stays while the disk is open.
    let script = "exec 3< /dev/vda; cat <&3 > /dev/null; echo read; read line";
    command.args(["--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guest = Guest::start(&mut command);
    let mut line = String::new();
    let mut stdout = BufReader::new(guest.child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut line).expect("the guest answers");
    assert_eq!(line, "read\n");
    let told = told(&reclaim(&guest, &["--target", "150M", "--json"]), 0);
    let cache = steps(&told).pop();
    assert!(
        cache.is_some_and(|(name, mib)| name == "cache" && mib >= 150),
        "{told}"
    );
}

#[test]
fn what_cannot_be_asked_for_is_named() {
    let holder = Holder::start(&["-m", "64M"]);
    for (options, why) in [
        (&["--target", "12"][..], "`12` has no unit"),
        (&["--target", "1M", "--all"], "cannot be used with"),
    ] {
        let output = reclaim(&holder.guest, options);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{err}");
        assert!(err.contains(why), "{err}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["reclaim", "--guest", "no-guest-is-called-this"]);
    let output = command.output().expect("ebb starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{err}");
    assert!(err.contains("no-guest-is-called-this"), "{err}");
}

/// Waits until a file exists.
fn wait_for(path: &str) {
    let start = Instant::now();
    while !std::path::Path::new(path).exists() {
        assert!(start.elapsed() < ebb::TIMEOUT, "there is no {path}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn by_balloon(socket: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["reclaim", "--qmp", socket, "--json"]);
    command.args(options).output().expect("ebb starts")
}

/// Starts a guest whose QEMU has a second monitor. Returns it with the monitor's socket.
fn monitored(scratch: &Scratch) -> (Holder, String) {
    let socket = scratch.path("qmp");
    let monitor = format!("--qemu-arg=unix:{socket},server=on,wait=off");
    let mut options = OFF.to_vec();
    options.extend(["--unconfined", "--qemu-arg=-qmp", &monitor]);
    let holder = Holder::start(&options);
    wait_for(&socket);
    (holder, socket)
}

#[test]
fn any_qemu_gives_memory_by_its_balloon_and_keeps_its_size() {
    let scratch = Scratch::new("qmp");
    let (mut holder, socket) = monitored(&scratch);
    let start = Instant::now();
    let output = loop {
        holder.tell("take 200", "taken");
        holder.tell("free", "freed");
        let output = by_balloon(&socket, &["--target", "100M"]);
        // A balloon that does not move for 5 s is given up. On a busy host, it may stand that long.
        if output.status.code() != Some(1) || start.elapsed() > ebb::TIMEOUT {
            break output;
        }
    };
    let given = told(&output, 0);
    assert_eq!(mib(&given["ballooned_bytes"]), 100, "{given}");
    let resident = |key: &str| mib(&given[key]);
    assert!(
        resident("resident_before_bytes") >= resident("resident_after_bytes") + 90,
        "{given}"
    );
    // The guest keeps the memory that it uses, and all its memory can be used again afterwards.
    holder.tell("take 300", "taken");
    let missed = told(&by_balloon(&socket, &["--target", "400M"]), 1);
    assert!(mib(&missed["ballooned_bytes"]) <= 180, "{missed}");
    holder.tell("take 150", "taken");
}

/// Shows that a balloon which a killed `ebb` left inflated is deflated by the next one.
#[test]
fn a_balloon_that_was_left_full_is_deflated() {
    let scratch = Scratch::new("qmp-left");
    let (mut holder, socket) = monitored(&scratch);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["reclaim", "--qmp", &socket]);
    command.stdout(Stdio::null());
    let mut asking = command.spawn().expect("ebb starts");
    let inside = || shown(&holder.guest)?["balloon_bytes"].as_u64();
    let start = Instant::now();
    loop {
        while inside() < Some(100 << 20) {
            if start.elapsed() > ebb::TIMEOUT {
                let _ = asking.kill();
                panic!("nothing comes into the balloon");
            }
            // On a busy host, the reclaim may end between two samples.
            if asking.try_wait().expect("it was started").is_some() {
                asking = command.spawn().expect("ebb starts");
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = asking.kill();
        asking.wait().expect("it was started");
        let mut output = by_balloon(&socket, &["--deflate"]);
        let first: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
        // A balloon that does not move for 5 s is given up. On a busy host, it may stand that long.
        while output.status.code() == Some(1) && start.elapsed() < ebb::TIMEOUT {
            output = by_balloon(&socket, &["--deflate"]);
        }
        let last = told(&output, 0);
        assert_eq!(last["memory_after_bytes"], last["memory_full_bytes"]);
        if mib(&first["memory_before_bytes"]) < mib(&first["memory_full_bytes"]) {
            break;
        }
        // It may also have deflated the balloon by itself before it was killed.
        assert!(start.elapsed() < ebb::TIMEOUT, "{first}");
        asking = command.spawn().expect("ebb starts");
    }
    holder.tell("take 400", "taken");
}

#[test]
fn a_socket_that_is_no_monitor_is_said_to_be_none() {
    let scratch = Scratch::new("no-qmp");
    let path = scratch.path("socket");
    let missing = by_balloon(&path, &[]);
    let err = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(125), "{err}");
    assert!(err.contains(&path), "{err}");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a free name");
    for (says, why) in [
        (&b"hello\n"[..], "not JSON"),
        (b"{\"return\":{}}\n", "does not greet"),
        (b"", "closed"),
    ] {
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client connects");
                let _ = stream.write_all(says);
            });
            by_balloon(&path, &["--target", "1M"])
        });
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{err}");
        assert!(err.contains(why), "{err}");
    }
}

/// Returns the figures of a guest from `ebb top`. Returns `None` if the guest answers late, as it
/// may on a busy host.
fn shown(guest: &Guest) -> Option<serde_json::Value> {
    let told = told(&top(&[]), 0);
    let guests = told["guests"].as_array().expect("a list");
    let ours = |shown: &&serde_json::Value| shown["pid"] == guest.child.id();
    guests.iter().find(ours).cloned()
}

/// Waits until `ebb top` shows that the guest is stopped by `by`, or that it runs if that is null.
fn stands_by(guest: &Guest, by: &serde_json::Value) {
    let start = Instant::now();
    loop {
        let shown = shown(guest);
        let found = shown.as_ref().map(|shown| &shown["standstill"]["by"]);
        if found == Some(by) {
            return;
        }
        assert!(
            start.elapsed() < ebb::TIMEOUT,
            "{by} was expected: {shown:?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn top(sockets: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["top", "--once", "--json"]);
    for socket in sockets {
        command.args(["--qmp", socket]);
    }
    command.output().expect("ebb starts")
}

/// Shows that `ebb top` gives the same figures of a QEMU through its balloon as `ebb` does itself.
#[test]
fn any_qemu_is_shown_by_its_balloon() {
    let scratch = Scratch::new("top-qmp");
    let (mut holder, socket) = monitored(&scratch);
    holder.tell("take 200", "taken");
    let shown = |kernel: &str| {
        let told = told(&top(&[&socket]), 0);
        let guests = told["guests"].as_array().expect("a list").clone();
        let wanted = |guest: &&serde_json::Value| {
            guest["kernel"] == kernel && is_of(guest, &holder.guest, &socket)
        };
        guests.iter().find(wanted).cloned()
    };
    // On a busy host, the guest may answer late. Then its earlier figures are shown, or none.
    let start = Instant::now();
    let used = |guest: &serde_json::Value| mib(&guest["used_bytes"]);
    let (ours, other) = loop {
        let (ours, other) = (shown("ebb"), shown("other"));
        assert!(start.elapsed() < ebb::TIMEOUT, "{other:?} {ours:?}");
        let (Some(ours), Some(other)) = (ours, other) else {
            continue;
        };
        if other["used_bytes"].is_u64() && used(&other).abs_diff(used(&ours)) <= 8 {
            break (ours, other);
        }
    };
    assert_eq!(other["memory_bytes"], ours["memory_bytes"]);
    let resident = mib(&other["resident_bytes"]);
    assert!((200..400).contains(&resident), "{other}");
    let gap = mib(&other["gap_bytes"]);
    let kept = used(&other) + mib(&other["reserved_bytes"]);
    assert!(gap.abs_diff(resident.saturating_sub(kept)) <= 1, "{other}");
    // With one wrong socket of two, it fails and names the wrong one.
    let output = top(&[&socket, "/nowhere/qmp"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{err}");
    assert!(err.contains("--qmp /nowhere/qmp: no monitor"), "{err}");
}

/// Returns whether an entry of `ebb top` is this run, or the QEMU of this monitor.
fn is_of(guest: &serde_json::Value, run: &Guest, socket: &str) -> bool {
    guest["pid"] == run.child.id() || guest["program"] == format!("QEMU at {socket}")
}

/// Shows that a stock Linux gives memory through its balloon, keeps its size, and keeps the memory
/// that its program uses.
#[test]
#[ignore = "long: make test-long"]
fn a_stock_guest_gives_what_is_free_and_then_its_cache() {
    let options = [
        "-m",
        "512M",
        "-c",
        "2",
        "--kernel",
        "linux",
        "--give-back",
        "off",
    ];
    let mut holder = Holder::start(&options);
    let start = Instant::now();
    let given = loop {
        holder.tell("take 250", "taken");
        holder.tell("free", "freed");
        let given = told(&reclaim(&holder.guest, &["--json"]), 0);
        // A balloon that does not move for 5 s is given up. On a busy host, it may stand that long.
        if steps(&given)[0].1 >= 180 || start.elapsed() > ebb::TIMEOUT {
            break given;
        }
    };
    let steps = steps(&given);
    assert_eq!(steps.len(), 1, "{given}");
    assert!(steps[0].0 == "free" && steps[0].1 >= 180, "{given}");
    holder.tell("take 250", "taken");
    let all = told(&reclaim(&holder.guest, &["--all", "--json"]), 0);
    assert_eq!(self::steps(&all)[0].0, "cache", "{all}");
    // The program's memory is unchanged, and all memory can be used again.
    holder.tell("free", "freed");
    holder.tell("take 300", "taken");
}

/// Shows that a request to a stopped guest fails at once with the reason, and succeeds after it
/// resumes.
#[test]
fn a_guest_that_stands_still_is_said_to() {
    let options = [
        "-m",
        "256M",
        "-c",
        "1",
        "--kernel",
        "linux",
        "--give-back",
        "off",
    ];
    let mut holder = Holder::start(&options);
    holder.tell("take 60", "taken");
    holder.tell("free", "freed");
    assert_eq!(reclaim(&holder.guest, &[]).status.code(), Some(0));
    let run = holder.guest.child.id();
    let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children"));
    let qemu = children.expect("it runs").trim().to_owned();
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &qemu]).status();
        assert!(status.expect("kill starts").success(), "{name} {qemu}");
    };
    signal("-STOP");
    stands_by(&holder.guest, &"signal".into());
    let output = reclaim(&holder.guest, &[]);
    signal("-CONT");
    stands_by(&holder.guest, &serde_json::Value::Null);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{err}");
    assert!(err.contains("`free`") && err.contains("SIGCONT"), "{err}");
    assert_eq!(reclaim(&holder.guest, &[]).status.code(), Some(0));
}
