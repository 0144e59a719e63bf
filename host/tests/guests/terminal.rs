//! What `ebb run` shows at a terminal.

use crate::screen::{self, READS, STATUS, SUMMARY, at_terminal, read_until};

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
