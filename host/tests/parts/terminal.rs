//! Runs programs on a terminal that script(1) creates.

use crate::running::TIMEOUT;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// The beginning of the status line.
pub(crate) const STATUS: &str = "ebb  used";
/// The beginning of the summary.
pub(crate) const SUMMARY: &str = "ebb: guest with";
/// The message about a program that reads from a terminal.
pub(crate) const READS: &str = "reads what you type";

/// Runs a shell command on a terminal of its own. `EBB` in the command stands for `ebb run` with
/// options for a small guest.
pub(crate) fn at_terminal(command: &str) -> Child {
    let ebb = format!(
        "{} run --accel tcg -m 64M -c 1 --timeout {}",
        env!("CARGO_BIN_EXE_ebb"),
        TIMEOUT.as_secs()
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

/// Reads the terminal's output until it contains `words`, or to its end.
pub(crate) fn read_until(child: &mut Child, seen: &mut String, words: Option<&str>) {
    let screen = child.stdout.as_mut().expect("it is piped");
    let mut chunk = [0; 4096];
    while !words.is_some_and(|words| seen.contains(words)) {
        // A terminal that is gone gives an error, which counts as the end.
        match screen.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(read) => seen.push_str(&String::from_utf8_lossy(&chunk[..read])),
        }
    }
    assert!(words.is_none_or(|words| seen.contains(words)), "{seen}");
}

/// Tests that a program that reads has the terminal to itself and that this is reported, in a guest
/// with these `options`.
pub(crate) fn a_program_that_reads_has_it_to_itself(options: &str) {
    let mut child = at_terminal(&format!("EBB {options} -- sh"));
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

/// Types on a terminal step by step. Each step has the typed text and the text that must appear
/// then. Returns all output.
pub(crate) fn dialog(command: &str, steps: &[(&str, &str)]) -> String {
    let mut child = at_terminal(command);
    let (mut all, mut seen) = (String::new(), String::new());
    for (typed, shows) in steps {
        let keys = child.stdin.as_mut().expect("it is piped");
        keys.write_all(typed.as_bytes()).expect("script reads");
        read_until(&mut child, &mut seen, Some(shows));
        // The rest of the output may already contain the text of the next step.
        let at = seen.find(shows).unwrap_or(0) + shows.len();
        let rest = seen.split_off(at);
        all.push_str(&std::mem::replace(&mut seen, rest));
    }
    all.push_str(&seen);
    read_until(&mut child, &mut all, None);
    let _ = child.wait();
    all
}

/// Shell code that prints the status of a command and the settings of the terminal.
pub(crate) const AFTER: &str = "; echo after=$?; stty -a";

/// Tests that a guest's shell has the user's terminal as its own: its size, the keys that end and
/// stop jobs, and line editing. `ebb` must restore the terminal's settings. Returns all output.
pub(crate) fn it_is_the_guests_with_its_keys_and_jobs(options: &str) -> String {
    let seen = dialog(
        &format!("stty rows 30 cols 100; EBB {options} -it -- sh{AFTER}"),
        &[
            ("", "# "),
            ("tty; stty size\r", "30 100"),
            // The program that prints is in the foreground and forks no more. A signal that arrives
            // while dash creates a child with vfork is lost, or stops only the child, on Linux too.
            ("sh -c 'echo a$((6 * 7)); exec cat > /dev/null'\r", "a42"),
            ("\x03", "# "),
            ("sh -c 'echo z$((1 + 1)); exec sleep 1000'\r", "z2"),
            ("\x1a", "Stopped"),
            ("kill %1; fg > /dev/null; echo b$((5 + 5))\r", "b10"),
            // Whole lines are expected, because an echo may come before the end of a line.
            ("echo c$((2 + 2)) > /dev/tty; cat\r", "c4\r\n"),
            ("ab\x7fc\r", "c\r\nac\r\n"),
            ("\x04", "# "),
            ("exit 7\r", "after=7"),
        ],
    );
    let (_, after) = seen.split_once(SUMMARY).expect("a summary at the end");
    for set in ["\nisig icanon", " echo ", "\nopost", " icrnl"] {
        assert!(after.contains(set), "{set}: {after}");
    }
    seen
}
