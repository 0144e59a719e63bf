//! What `ebb run` shows at a terminal, which script(1) makes for it.

use crate::running::PATIENCE;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// How the status line begins.
const STATUS: &str = "ebb  used";
/// How the summary begins.
const SUMMARY: &str = "ebb: guest with";
/// What is said of a program that reads from a terminal.
const READS: &str = "reads what you type";

/// Runs a shell command at a terminal of its own, with `EBB` for a small guest's `ebb run`.
fn at_terminal(command: &str) -> Child {
    let ebb = format!(
        "{} run --accel tcg -m 64M -c 1 --timeout {}",
        env!("CARGO_BIN_EXE_ebb"),
        PATIENCE.as_secs()
    );
    Command::new("script")
        .args(["-qec", &command.replace("EBB", &ebb), "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env_remove("EBB_KERNEL_IMAGE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script(1) starts")
}

/// Reads what the terminal shows until `words` are there, or to its end.
fn read_until(child: &mut Child, seen: &mut String, words: Option<&str>) {
    let screen = child.stdout.as_mut().expect("it is piped");
    let mut chunk = [0; 4096];
    while !words.is_some_and(|words| seen.contains(words)) {
        // A terminal that is gone gives an error, as good as an end.
        match screen.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(read) => seen.push_str(&String::from_utf8_lossy(&chunk[..read])),
        }
    }
    assert!(words.is_none_or(|words| seen.contains(words)), "{seen}");
}

fn shown(command: &str) -> String {
    let mut child = at_terminal(command);
    let mut seen = String::new();
    read_until(&mut child, &mut seen, None);
    assert!(child.wait().expect("script ends").success(), "{seen}");
    seen
}

#[test]
fn a_program_that_reads_has_the_terminal_to_itself() {
    let mut child = at_terminal("EBB -- sh");
    let mut seen = String::new();
    read_until(&mut child, &mut seen, Some(READS));
    let keys = child.stdin.as_mut().expect("it is piped");
    keys.write_all(b"echo $((6 * 7))\n").expect("script reads");
    read_until(&mut child, &mut seen, Some("42"));
    let keys = child.stdin.as_mut().expect("it is piped");
    keys.write_all(b"\x04").expect("script reads");
    read_until(&mut child, &mut seen, Some(SUMMARY));
    let (_, after) = seen.split_once(READS).expect("it was said");
    assert!(!after.contains(STATUS), "{after}");
    let _ = child.wait();
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
