//! Tests of `--out`, which copies files out of guests, for both kernels.

use crate::scratch::Scratch;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

type Ebb = fn(&[&str]) -> Command;

fn run(ebb: Ebb, outs: &[String], options: &[&str], script: &str) -> (Output, String) {
    let mut arguments = vec!["--quiet"];
    for out in outs {
        arguments.extend(["--out", out]);
    }
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", script]);
    let output = ebb(&arguments).output().expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, stderr)
}

/// Tests that a folder and files are copied however the program ended, also while other processes
/// change them.
pub(crate) fn what_a_program_leaves_is_copied(ebb: Ebb) {
    let scratch = Scratch::new("out");
    scratch.write("one", "older");
    let script = "mkdir -p /results/sub/deep; cd /results; echo first > a; echo second > sub/b; \
        chmod 4750 a; ln -s sub/b in; ln -s ../../a sub/deep/up; ln -s /etc/passwd away; mkfifo pipe; \
        dd if=/dev/zero bs=1M count=20 2>/dev/null | tr '\\0' x > big; : > empty; ln -s /results /link; \
        while :; do date > sub/deep/clock; done & \
        echo more; kill -9 $$";
    let outs = [
        format!("/link:{}", scratch.path("got")),
        format!("results/a:{}", scratch.path("one")),
        format!("/proc/version:{}/", scratch.path("")),
    ];
    let (output, stderr) = run(ebb, &outs, &[], script);
    assert_eq!(output.status.code(), Some(137), "{stderr}");
    assert_eq!(output.stdout, b"more\n");
    assert_eq!(stderr, "");
    let read =
        |path: &str| fs::read(scratch.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(read("got/a"), b"first\n");
    assert_eq!(
        (read("got/in"), read("got/sub/b")),
        (b"second\n".to_vec(), b"second\n".to_vec())
    );
    assert_eq!(
        (read("got/sub/deep/up"), read("one")),
        (b"first\n".to_vec(), b"first\n".to_vec())
    );
    assert!(read("got/big") == vec![b'x'; 20 << 20] && read("got/empty").is_empty());
    assert!(read("version").starts_with(b"Linux version "));
    let mode = fs::metadata(scratch.path("got/a"))
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(
        mode & 0o7700,
        0o700,
        "set-user-ID goes, the owner's rights stay"
    );
    let folder = fs::read_dir(scratch.path("got")).expect("a folder");
    assert_eq!(folder.count(), 5, "no pipe, no link to elsewhere");
    assert_eq!(scratch.files(), ["got", "one", "version"]);
}

/// Tests that skipped files are reported, unless messages are switched off.
pub(crate) fn what_is_left_out_is_said(ebb: Ebb) {
    let scratch = Scratch::new("out-left");
    let out = format!("/r:{}", scratch.path("r"));
    let script = "mkdir /r; mkfifo /r/pipe; ln -s /etc /r/etc; exit 3";
    let output = ebb(&["--out", &out, "--", "sh", "-c", script]).output();
    let output = output.expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("left out /r/pipe (a pipe)"), "{stderr}");
    assert!(
        stderr.contains("left out /r/etc (a link to /etc, outside"),
        "{stderr}"
    );
    assert_eq!(scratch.files(), ["r"]);
}

/// Tests that a program is killed after its time limit and that its files are copied.
pub(crate) fn a_program_out_of_time_leaves_its_files(ebb: Ebb, time: &str) {
    let scratch = Scratch::new("out-time");
    let outs = [format!("/r:{}", scratch.path("r"))];
    let script = "echo there > /r; trap '' TERM; while :; do sleep 1; done";
    // On a busy host, a short time may pass before the program has its file.
    let left = [time, "300"].into_iter().find_map(|time| {
        let options = ["--timeout", time, "--grace", "2m"];
        let (output, stderr) = run(ebb, &outs, &options, script);
        assert_eq!(output.status.code(), Some(124), "{stderr}");
        Some((fs::read(scratch.path("r")).ok()?, stderr))
    });
    let (left, stderr) = left.expect("its file is copied");
    assert!(stderr.contains("still running after"), "{stderr}");
    assert_eq!(left, b"there\n");
}

/// Tests that a missing or too large file is reported, and that the status shows it if the program
/// succeeded.
pub(crate) fn what_cannot_be_copied_is_an_error(ebb: Ebb) {
    let scratch = Scratch::new("out-missing");
    let outs = [
        format!("/none:{}", scratch.path("none")),
        format!("/small:{}", scratch.path("small")),
        format!("/big:{}", scratch.path("big")),
        format!("/small:{}", scratch.path("late")),
    ];
    let make = "echo x > /small; mkdir /big; cd /big; echo y > a; dd if=/dev/zero of=b bs=1k count=40 2>/dev/null";
    for (end, status) in [("", 125), ("; exit 3", 3)] {
        let script = format!("{make}{end}");
        let (output, stderr) = run(ebb, &outs, &["--out-max", "24K"], &script);
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        for part in [
            "--out /none: not copied: No such file or directory",
            "--out /big: incomplete, in ",
            "--out /small: not copied: there is more than 24K (--out-max)",
        ] {
            assert!(stderr.contains(part), "{stderr}");
        }
        let names = scratch.files();
        assert!(
            names[0].starts_with("big.partial-") && names[1] == "small",
            "{names:?}"
        );
        let partial = scratch.path(&names[0]);
        assert_eq!(fs::read(format!("{partial}/a")).expect("it came"), b"y\n");
        fs::remove_dir_all(partial).expect("it can be removed");
        assert_eq!(scratch.files(), ["small"]);
    }
}
