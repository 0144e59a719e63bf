//! Files out of guests with Ebb's kernel.

use crate::guest::ebb;
use crate::out;
use crate::scratch::Scratch;

#[test]
fn what_a_program_leaves_is_copied() {
    out::what_a_program_leaves_is_copied(ebb);
}

#[test]
fn what_is_left_out_is_said() {
    out::what_is_left_out_is_said(ebb);
}

#[test]
fn a_program_out_of_time_leaves_its_files() {
    out::a_program_out_of_time_leaves_its_files(ebb, "10");
}

#[test]
fn what_cannot_be_copied_is_an_error() {
    out::what_cannot_be_copied_is_an_error(ebb);
}

#[test]
fn a_kernel_that_panics_leaves_nothing_and_that_is_said() {
    let scratch = Scratch::new("out-panic");
    let arguments = format!("/r:{}", scratch.path("r"));
    let script = "echo x > /r; echo c > /proc/sysrq-trigger; sleep 60";
    let output = ebb(&["--out", &arguments, "--", "sh", "-c", script]).output();
    let output = output.expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("--out /r: not copied: the guest ended"),
        "{stderr}"
    );
    assert!(stderr.contains("panicked"), "{stderr}");
    assert!(scratch.files().is_empty());
}

#[test]
fn disks_leave_their_places_and_a_full_memory_what_is_in_it() {
    let scratch = Scratch::new("out-full");
    let out = format!("/big:{}", scratch.path("big"));
    // Memory for files ends before that of programs does.
    let script = "dd if=/dev/zero of=/big bs=64k 2>/dev/null; head -c 8 /dev/vdc | wc -c";
    let mut arguments = vec!["-m", "64M", "--out", &out];
    arguments.extend(["--disk", "ram:1M", "--disk", "ram:1M", "--disk", "ram:1M"]);
    arguments.extend(["--", "sh", "-c", script]);
    let output = ebb(&arguments).output().expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"8\n"[..]),
        "{stderr}"
    );
    let size = std::fs::metadata(scratch.path("big"))
        .expect("it is there")
        .len();
    assert!(size > 8 << 20, "{size}");
}
