//! Tests of the messages and statuses of `ebb run` when it cannot run a program. No guest is
//! started.

#[path = "parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;

use scratch::Scratch;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

fn ebb(arguments: &[&str]) -> Output {
    command(arguments).output().expect("ebb starts")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command
        .args(["run", "--root", "none"])
        .args(arguments)
        .env_remove("EBB_KERNEL_IMAGE");
    command
}

/// Asserts the status and words of the message, and that stdout is empty.
fn refused(output: &Output, status: i32, words: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is missing in: {message}");
    }
    assert!(output.stdout.is_empty());
}

#[test]
fn a_stock_linux_does_not_hint() {
    let arguments = ["--kernel", "linux", "--give-back", "hinting", "--", "ls"];
    refused(&ebb(&arguments), 125, &["--give-back hinting", "Linux"]);
    let arguments = ["--kernel", "linux", "--give-back", "shared", "--", "ls"];
    refused(&ebb(&arguments), 125, &["--give-back shared", "Linux"]);
    let arguments = ["--icount", "--give-back", "shared", "--", "ls"];
    refused(&ebb(&arguments), 125, &["--give-back shared", "--icount"]);
    let arguments = ["--give-back", "soon", "--", "ls"];
    refused(
        &ebb(&arguments),
        125,
        &["soon", "reporting", "hinting", "off"],
    );
}

#[test]
fn the_version_has_the_commit() {
    let output = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .arg("--version")
        .output()
        .expect("ebb starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let rest = said.trim_end().strip_prefix("ebb ").expect("its name");
    let (number, commit) = rest.split_once(' ').unwrap_or((rest, ""));
    assert_eq!(number, env!("CARGO_PKG_VERSION"));
    // An unpacked archive has no commit.
    let is_commit = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let inner = commit.trim_matches(['(', ')']);
    assert!(is_commit(inner), "{said}");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.git");
    assert!(!root.exists() || inner.len() >= 12, "{said}");
}

#[test]
fn the_experiments_run_on_the_host() {
    let output = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["workloads", "--help"])
        .output()
        .expect("ebb starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("page-fault"), "{text}");
}

#[test]
fn users_that_are_not_there() {
    for (user, words) in [
        ("frob", ["--user frob", "`frob`"]),
        ("7:frobs", ["--user 7:frobs", "`frobs`"]),
        ("a:b:c", ["a:b:c", "UID"]),
        ("", ["--user", "UID"]),
    ] {
        refused(&ebb(&["--user", user, "--", "ls"]), 125, &words);
    }
    let arguments = ["--root", "host", "--user", "frob", "--", "ls"];
    refused(&ebb(&arguments), 125, &["`frob`", "/etc/passwd"]);
}

#[test]
fn sizes_and_cpus_out_of_range() {
    refused(
        &ebb(&["-m", "16M", "--", "ls"]),
        125,
        &["-m 16M", "32M", "512G"],
    );
    refused(&ebb(&["-m", "2T", "--", "ls"]), 125, &["-m 2T"]);
    refused(&ebb(&["-m", "1024", "--", "ls"]), 125, &["1024", "no unit"]);
    refused(&ebb(&["-c", "0", "--", "ls"]), 125, &["-c 0"]);
    refused(&ebb(&["-c", "-1", "--", "ls"]), 125, &["-1", "--cpus"]);
    refused(&ebb(&["-m", "-1G", "--", "ls"]), 125, &["-1G", "--memory"]);
    refused(&ebb(&["-c", "65", "--", "ls"]), 125, &["-c 65", "64"]);
    refused(
        &ebb(&["-c", "2", "--icount", "--", "ls"]),
        125,
        &["-c 2", "--icount"],
    );
    refused(
        &ebb(&["--icount", "--accel", "kvm", "--", "ls"]),
        125,
        &["--icount"],
    );
}

#[test]
fn options_that_mean_nothing() {
    refused(
        &ebb(&["--machine", "pc", "--", "ls"]),
        125,
        &["pc", "microvm", "q35"],
    );
    refused(
        &ebb(&["--sysctl", "kernel.x=1", "--", "ls"]),
        125,
        &["kernel.x"],
    );
    refused(&ebb(&["--sysctl", "vm.x=1 2", "--", "ls"]), 125, &["1 2"]);
    refused(&ebb(&["--env", "=x", "--", "ls"]), 125, &["--env =x"]);
    refused(&ebb(&["--reporting-order", "11", "--", "ls"]), 125, &["11"]);
    // The stdin of a test is no terminal.
    refused(&ebb(&["-it", "--", "sh"]), 125, &["not a terminal"]);
    let typed = ["-it", "--kernel", "linux", "--", "sh"];
    refused(&ebb(&typed), 125, &["not a terminal"]);
    refused(&ebb(&[]), 125, &["PROGRAM"]);
}

#[test]
fn lengths_of_time() {
    for text in ["0", "5x", "-1", "1e9", "400d", ""] {
        let argument = format!("--timeout={text}");
        refused(&ebb(&[&argument, "--", "ls"]), 125, &["--timeout", text]);
        let argument = format!("--grace={text}");
        refused(&ebb(&[&argument, "--", "ls"]), 125, &["--grace", text]);
    }
    for option in ["--timeout", "--grace"] {
        let told = ["`-1` is less than no time", option];
        refused(&ebb(&[option, "-1", "--", "ls"]), 125, &told);
    }
    for text in ["0.5", "500ms", "2s", "5m", "1h"] {
        let output = ebb(&["--timeout", text, "--dump-initramfs", "/dev/null", "ls"]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn what_can_be_said_once_is_refused_twice() {
    let names = ["--name", "a", "--name", "b", "--", "ls"];
    refused(&ebb(&names), 125, &["--name a", "--name b"]);
    let scratch = Scratch::new("twice");
    let (one, other) = (scratch.write("one", b"1"), scratch.write("other", b"2"));
    let (first, second) = (format!("{one}:/data/x"), format!("{other}:/data//x"));
    let files = ["--file", &first, "--file", &second, "--", "ls"];
    refused(&ebb(&files), 125, &["/data/x", &one, &other]);
    let (new, link) = (scratch.path("new"), scratch.path("link"));
    std::os::unix::fs::symlink("one", &link).expect("a link");
    for (timeline, record) in [(&new, &new), (&one, &one), (&one, &link)] {
        let results = ["--timeline", timeline, "--record", record, "--", "ls"];
        let words = ["--timeline and --record both go to", record];
        refused(&ebb(&results), 125, &words);
    }
    let copy = format!("/etc/hostname:{new}");
    for option in ["--timeline", "--record"] {
        let results = ["--out", &copy, option, &new, "--", "ls"];
        let words = [&*format!("--out and {option} both go to"), &*new];
        refused(&ebb(&results), 125, &words);
    }
    let folder = scratch.path("folder");
    fs::create_dir(&folder).expect("a new folder");
    let (copy, record) = (format!("/etc:{folder}"), format!("{folder}/record"));
    refused(
        &ebb(&["--out", &copy, "--record", &record, "--", "ls"]),
        125,
        &["--record goes to", &record, "that --out fills", &folder],
    );
    assert!(!std::path::Path::new(&record).exists());
    assert!(!std::path::Path::new(&new).exists());
    assert_eq!(fs::read(&one).expect("it is left as it was"), b"1");
    refused(
        &ebb(&["--disk", "ram:1M,log_stats=1,log_stats=0", "--", "ls"]),
        125,
        &["ram:1M,log_stats=1,log_stats=0", "has log_stats twice"],
    );
}

#[test]
fn help_is_no_error() {
    let output = ebb(&["--help"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("Examples:"));
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let full = fs::File::options().write(true).open("/dev/full");
    let full = full.expect("it is there");
    let output = command(&["--help"]).stdout(full).output();
    let output = output.expect("ebb starts");
    refused(&output, 125, &["cannot write stdout", "No space left"]);
    let (reader, closed) = UnixStream::pair().expect("sockets");
    drop(reader);
    let output = command(&["--help"]).stdout(OwnedFd::from(closed)).output();
    assert_eq!(output.expect("ebb starts").status.code(), Some(0));
}

#[test]
fn missing_files_are_named() {
    refused(
        &ebb(&["--file", "/no/such", "--", "ls"]),
        125,
        &["/no/such", "no such file"],
    );
    refused(
        &ebb(&["--timeline", "/no/such/x", "--", "ls"]),
        125,
        &["/no/such/x"],
    );
    refused(
        &ebb(&["--qemu", "/no/such/qemu", "--accel", "tcg", "--", "ls"]),
        125,
        &["/no/such/qemu", "apt install qemu-system-x86"],
    );
    refused(
        &ebb(&["--kernel-image", "/no/such", "--", "ls"]),
        125,
        &["/no/such"],
    );
    refused(
        &ebb(&["--", "./no-such-program"]),
        127,
        &["./no-such-program"],
    );
    refused(&ebb(&["--", "no-such-command"]), 127, &["no-such-command"]);
    refused(
        &ebb(&["--", "--no-such-program"]),
        127,
        &["--no-such-program"],
    );
}

#[test]
fn slips_and_words_of_containers_are_errors_of_usage() {
    for (arguments, words) in [
        (["--memroy", "2G", "--", "ls"], ["--memroy", "--memory"]),
        (["--timout", "5", "--", "ls"], ["--timout", "--timeout"]),
        (["-d", "ls", "-l", "/"], ["'-d'", "ebb top"]),
        (["--mount", "/tmp:/x", "--", "ls"], ["--mount", "--volume"]),
        (["-v", "/tmp", "--", "ls"], ["--volume /tmp", "SRC:DST"]),
    ] {
        refused(&ebb(&arguments), 125, &words);
    }
    let output = ebb(&["--dump-initramfs", "/dev/null", "ls", "--memroy"]);
    assert!(output.status.success(), "after the program all is its own");
}

#[test]
fn programs_that_cannot_run() {
    let scratch = Scratch::new("programs");
    // The libraries of a dynamic program are looked for before it runs.
    let own = fs::read(env!("CARGO_BIN_EXE_ebb")).expect("ebb is a file");
    for (there, missing) in [
        (
            "/lib64/ld-linux-x86-64.so.2\0",
            "/lib64/ld-non-existent.so.2\0",
        ),
        ("\0libc.so.6\0", "\0libX.so.6\0"),
    ] {
        let at = own
            .windows(there.len())
            .position(|bytes| bytes == there.as_bytes());
        let at = at.expect("ebb is dynamic");
        let mut changed = own.clone();
        changed[at..at + there.len()].copy_from_slice(missing.as_bytes());
        let changed = scratch.write("changed", changed);
        let words = [changed.as_str(), missing.trim_matches('\0'), "install it"];
        refused(&ebb(&["--", &changed]), 126, &words);
    }
    let text = scratch.write("text", b"hello\n");
    refused(&ebb(&["--", &text]), 126, &[&text, "neither"]);
    let mut arm = b"\x7fELF\x02\x01\x01".to_vec();
    arm.resize(64, 0);
    arm[18] = 183;
    let arm = scratch.write("arm", &arm);
    refused(&ebb(&["--", &arm]), 126, &[&arm, "x86-64"]);
    let script = scratch.write("script", b"#!/usr/bin/no-such\nprint()\n");
    refused(&ebb(&["--", &script]), 126, &[&script, "/usr/bin/no-such"]);
    let script = scratch.write("env", b"#!/usr/bin/env no-such\nprint()\n");
    refused(&ebb(&["--", &script]), 126, &[&script, "no-such"]);
    let told = "it is a directory, not a program";
    refused(&ebb(&["--", "/usr"]), 126, &["/usr", told]);
    let empty = scratch.write("empty", b"");
    refused(&ebb(&["--", &empty]), 126, &[&empty, "empty"]);
}

#[test]
fn no_busybox_says_what_to_install() {
    let output = command(&["--", "no-such-command"])
        .env("PATH", "/nowhere")
        .output();
    refused(
        &output.expect("ebb starts"),
        126,
        &["busybox", "apt install busybox-static"],
    );
}

#[test]
fn too_much_for_the_guest() {
    let scratch = Scratch::new("large");
    let path = scratch.write("large", b"");
    fs::File::options()
        .write(true)
        .open(&path)
        .expect("it is there")
        .set_len(40 << 20)
        .unwrap();
    let file = format!("{path}:/large");
    refused(
        &ebb(&["-m", "64M", "--file", &file, "--", "ls"]),
        125,
        &["of a guest with 64M", "-m"],
    );
}

#[test]
fn volumes_that_cannot_be() {
    let scratch = Scratch::new("volumes");
    let file = scratch.write("file", "x");
    let folder = scratch.folder().display().to_string();
    for (value, why) in [
        ("x", "SRC:DST"),
        (&*format!("{folder}:relative"), "absolute"),
        (&*format!("{folder}:/a/../b"), "without `..`"),
        (&*format!("{folder}:/proc/x"), "guest's own"),
        (&*format!("{folder}/absent:/x"), "No such file"),
        (&*format!("{file}:/x"), "Not a directory"),
    ] {
        refused(
            &ebb(&["--volume", value, "--", "ls"]),
            125,
            &[&format!("--volume {value}"), why],
        );
    }
    let ok = format!("{folder}:/x");
    let twice = ["--volume", &ok, "--volume", &ok, "--", "ls"];
    refused(&ebb(&twice), 125, &["--volume", "another one"]);
    let counted = ["--icount", "--volume", &ok, "--", "ls"];
    refused(&ebb(&counted), 125, &["--volume", "--icount"]);
    let disk = ["--disk", "ram:1M"];
    let full = [
        &disk[..],
        &disk,
        &disk,
        &disk,
        &["--volume", &ok, "--", "ls"],
    ]
    .concat();
    refused(&ebb(&full), 125, &["--volume", "3 disks"]);
}

#[test]
fn archives_that_are_no_root() {
    let scratch = Scratch::new("images");
    let text = scratch.write("text", "no tar at all");
    let image = ["--root", &text, "--", "ls"];
    refused(&ebb(&image), 125, &[&text, "neither a directory nor a tar"]);
    let absent = scratch.path("absent.tar");
    refused(
        &ebb(&["--root", &absent, "--", "ls"]),
        125,
        &[&absent, "No such file"],
    );
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.as_old_mut().name[..8].copy_from_slice(b"../../up");
    header.set_cksum();
    builder.append(&header, &b""[..]).expect("memory takes it");
    let hostile = scratch.write("up.tar", builder.into_inner().expect("it is whole"));
    refused(
        &ebb(&["--root", &hostile, "--", "ls"]),
        125,
        &[&hostile, "entry ../../up"],
    );
    refused(
        &ebb(&["--root", &scratch.folder().display().to_string()]),
        125,
        &["--root", "no program"],
    );
}
