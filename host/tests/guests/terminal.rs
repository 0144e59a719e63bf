//! Tests of the output of `ebb run` on a terminal.

use crate::running::signal;
use crate::screen::{self, AFTER, READS, STATUS, SUMMARY, at_terminal, read_until};
use std::io::Write;

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
    let script = "exec < /dev/null; trap \"exit 0\" INT; echo ready; while :; do sleep 0.1; done";
    let mut child = at_terminal(&format!("EBB -- sh -c '{script}'"));
    let mut seen = String::new();
    read_until(&mut child, &mut seen, Some("ready"));
    read_until(&mut child, &mut seen, Some(STATUS));
    let keys = child.stdin.as_mut().expect("it is piped");
    keys.write_all(b"\x03").expect("script reads");
    read_until(&mut child, &mut seen, Some(SUMMARY));
    assert!(!seen.contains(READS), "{seen}");
    // The shell between may report the interrupt.
    let _ = child.wait();
}

#[test]
fn a_pipe_that_may_lead_to_the_terminal_has_no_status_line() {
    let seen = shown("EBB -- sh -c 'exec < /dev/null; echo one; sleep 1; echo two' | cat");
    assert!(seen.contains("one") && seen.contains("two"), "{seen}");
    assert!(!seen.contains(STATUS) && seen.contains(SUMMARY), "{seen}");
    // The summary of a run is one line unless more is asked for.
    let (_, after) = seen.split_once(SUMMARY).expect("it is there");
    assert_eq!(after.trim_end().lines().count(), 1, "{seen}");
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
    let seen = screen::it_is_the_guests_with_its_keys_and_jobs("--timeout 300");
    assert!(seen.contains("/dev/hvc0"), "{seen}");
    assert!(!seen.contains(STATUS), "{seen}");
}

#[test]
fn the_terminal_is_the_users_again_when_ebb_is_told_to_end() {
    let deaf = "trap : TERM HUP; echo ready; while :; do sleep 1; done";
    let ebb = format!("exec EBB --grace 0.5 -it -- sh -c \"{deaf}\"");
    let mut child = at_terminal(&format!("sh -c 'echo pid=$$.; {ebb}'{AFTER}"));
    let mut seen = String::new();
    read_until(&mut child, &mut seen, Some("ready"));
    let (_, pid) = seen.split_once("pid=").expect("it was printed");
    let (pid, _) = pid.split_once('.').expect("it ends there");
    signal(pid.parse().expect("a number"), "TERM");
    read_until(&mut child, &mut seen, None);
    assert!(child.wait().expect("script ends").success(), "{seen}");
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
fn who_writes_to_a_terminal_without_a_reader_is_hung_up() {
    let seen =
        shown("(EBB --timeout 300 -t -- yes; echo status=$? >&2) < /dev/null | head -1; echo over");
    assert!(seen.contains("status=129"), "{seen}");
    assert!(seen.contains("over"), "{seen}");
}

#[test]
fn in_the_background_the_terminal_stays_as_it_is() {
    let ebb = "EBB --timeout 300 -it -- sh -c 'sleep 1; echo done'";
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
