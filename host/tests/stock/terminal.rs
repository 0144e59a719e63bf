//! What `ebb run --kernel linux` shows at a terminal.

use crate::guest::available;
use crate::screen::{self, AFTER, SUMMARY, dialog};

#[test]
fn a_program_that_reads_has_the_terminal_to_itself() {
    if available() {
        screen::a_program_that_reads_has_it_to_itself("--kernel linux -m 320M");
    }
}

#[test]
fn the_terminal_is_the_guests_with_its_keys_and_jobs() {
    if !available() {
        return;
    }
    let ebb = "EBB --kernel linux -m 320M -it -- sh";
    let seen = dialog(
        &format!("stty rows 30 cols 100; {ebb}{AFTER}"),
        &[
            ("", "# "),
            ("tty; stty size\r", "30 100"),
            ("sh -c 'echo a$((6 * 7)); exec cat > /dev/null'\r", "a42"),
            ("\x03", "# "),
            ("sh -c 'echo z$((1 + 1)); exec sleep 1000'\r", "z2"),
            ("\x1a", "Stopped"),
            ("kill %1; fg > /dev/null; echo b$((5 + 5))\r", "b10"),
            ("echo c$((2 + 2)) > /dev/tty; cat\r", "c4\r\n"),
            ("ab\x7fc\r", "c\r\nac\r\n"),
            ("\x04", "# "),
            ("exit 7\r", "after=7"),
        ],
    );
    assert!(seen.contains("/dev/pts/0"), "{seen}");
    let (_, after) = seen.split_once(SUMMARY).expect("a summary at the end");
    for set in ["\nisig icanon", " echo ", "\nopost", " icrnl"] {
        assert!(after.contains(set), "{set}: {after}");
    }
}

#[test]
fn who_writes_to_a_terminal_that_nobody_sees_is_hung_up() {
    if !available() {
        return;
    }
    let ebb = "EBB --kernel linux -m 320M -t -- yes";
    let seen = dialog(
        &format!("({ebb}; echo status=$? >&2) < /dev/null | head -1; echo over"),
        &[("", "over")],
    );
    assert!(seen.contains("status=129"), "{seen}");
}
