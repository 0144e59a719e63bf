//! Tests of the output of `ebb run` on a terminal.

use crate::screen::{self, AFTER, READS, STATUS, SUMMARY, at_terminal, read_until};

fn shown(command: &str) -> String {
    let mut child = at_terminal(command);
    let mut seen = String::new();
    read_until(&mut child, &mut seen, None);
    assert!(child.wait().expect("script ends").success(), "{seen}");
    seen
}

#[test]
fn a_program_that_reads_has_the_terminal_to_itself() {
    screen::a_program_that_reads_has_it_to_itself("");
}

#[test]
fn a_program_that_does_not_read_leaves_the_status_line() {
    let seen = shown("EBB -- sh -c 'exec < /dev/null; sleep 1'");
    assert!(seen.contains(STATUS) && seen.contains(SUMMARY), "{seen}");
    assert!(!seen.contains(READS), "{seen}");
}

#[test]
fn a_job_in_the_background_shows_only_what_it_is_asked_for() {
    let job =
        |options: &str| format!("sh -mc 'EBB {options} -- sh -c \"sleep 1; echo done\" & wait'");
    let seen = shown(&job(""));
    assert!(seen.contains("done"), "{seen}");
    assert!(!seen.contains(STATUS) && !seen.contains(SUMMARY), "{seen}");
    let seen = shown(&job("--summary"));
    assert!(!seen.contains(STATUS) && seen.contains(SUMMARY), "{seen}");
}

#[test]
fn the_terminal_is_the_guests_with_its_keys_and_jobs() {
    let seen = screen::it_is_the_guests_with_its_keys_and_jobs("--timeout 60");
    assert!(seen.contains("/dev/hvc0"), "{seen}");
    assert!(!seen.contains(STATUS), "{seen}");
}

#[test]
fn the_terminal_is_the_users_again_when_ebb_is_told_to_end() {
    let deaf = "trap : TERM HUP; echo ready; while :; do sleep 1; done";
    let ebb = format!("EBB --grace 0.5 -it -- sh -c '{deaf}'");
    let seen = shown(&format!(
        "timeout --preserve-status --foreground 4 {ebb}{AFTER}"
    ));
    assert!(seen.contains("ready"), "{seen}");
    let (_, after) = seen.split_once("after=143").expect("the status of SIGTERM");
    for set in ["\nisig icanon", " echo ", "\nopost", " icrnl"] {
        assert!(after.contains(set), "{set}: {after}");
    }
}

#[test]
fn a_terminal_without_input_needs_none_here() {
    let seen = shown("EBB -t -- sh -c 'test -t 0 && test -t 1 && tty; stty -a' < /dev/null | cat");
    assert!(seen.contains("/dev/hvc0"), "{seen}");
    assert!(seen.contains("iutf8"), "{seen}");
}

#[test]
fn who_writes_to_a_terminal_that_nobody_sees_is_hung_up() {
    let seen =
        shown("(EBB --timeout 60 -t -- yes; echo status=$? >&2) < /dev/null | head -1; echo over");
    assert!(seen.contains("status=129"), "{seen}");
    assert!(seen.contains("over"), "{seen}");
}

#[test]
fn in_the_background_the_terminal_stays_as_it_is() {
    let ebb = "EBB --timeout 60 -it -- sh -c 'sleep 1; echo done'";
    let seen = shown(&format!(
        r#"sh -mc "{ebb} & wait \$!; echo status=\$?"{AFTER}"#
    ));
    assert!(seen.contains("done"), "{seen}");
    assert!(seen.contains("status=0"), "{seen}");
    let (_, after) = seen.split_once("after=0").expect("the shell ends");
    for set in ["\nisig icanon", " echo ", "\nopost", " icrnl"] {
        assert!(after.contains(set), "{set}: {after}");
    }
}
