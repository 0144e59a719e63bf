//! Tests of the output of `ebb run --kernel linux` on a terminal.

use crate::guest::available;
use crate::screen::{self, dialog};

#[test]
#[ignore = "long: make test-long"]
fn a_program_that_reads_has_the_terminal_to_itself() {
    if available() {
        screen::a_program_that_reads_has_it_to_itself("--kernel linux -m 320M");
    }
}

#[test]
fn the_terminal_is_the_guests_with_its_keys_and_jobs() {
    if available() {
        let seen = screen::it_is_the_guests_with_its_keys_and_jobs("--kernel linux -m 320M");
        assert!(seen.contains("/dev/pts/0"), "{seen}");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn who_writes_to_a_terminal_without_a_reader_is_hung_up() {
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
