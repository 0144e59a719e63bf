//! Tests of the rule by which `kcompactd` compacts before memory is asked for. Nothing else empties
//! blocks: the guests give nothing back.

use crate::{ebb, programs};

/// Asserts what the part `part` of the program prints in a guest with `memory`, by the number of
/// CPUs and with the mode `give_back`.
#[track_caller]
fn prints(part: &str, memory: &str, cpus: &[&str], give_back: &str, expected: &str) {
    let program = programs::text(programs::path("compaction_rule"));
    for cpus in cpus {
        let options = [
            "-m",
            memory,
            "-c",
            cpus,
            "--give-back",
            give_back,
            // Each locked page is an area of its own.
            "--sysctl",
            "vm.max_map_count=200000",
        ];
        let outcome = ebb::run(900, &options, &[program.as_str(), part]);
        let said = outcome.expect(0).out();
        assert_eq!(said, expected, "{part}: {cpus} CPUs, {give_back}");
    }
}

#[test]
fn it_begins_above_the_high_threshold_and_at_once_after_a_write() {
    prints(
        "begins",
        "256M",
        &["1", "2"],
        "off",
        "below high: no\nabove high: whole\nafter it: no\nwrong pages: 0\n",
    );
}

#[test]
fn blocks_that_are_dear_are_emptied_down_to_the_low_threshold() {
    let expected = "low: reached\nwrong pages: 0\n";
    prints("ends", "256M", &["1", "2"], "off", expected);
}

#[test]
fn each_zone_is_compacted_by_its_own_fragmentation() {
    let expected = "zones: two\nthe first: whole\nthe other: whole\nwrong pages: 0\n";
    prints("zones", "4G", &["2"], "off", expected);
}

#[test]
fn it_does_nothing_while_a_zone_is_low_on_memory() {
    prints(
        "guard",
        "256M",
        &["1", "2"],
        "off",
        "in pieces: most\nlow on memory: no\nno longer: whole\nwrong pages: 0\n",
    );
}

#[test]
#[ignore = "long: make test-long"]
fn where_nothing_moves_it_lets_looks_pass() {
    let expected =
        "tries again: after a while\ncounted: yes\nonce it moves: whole\nwrong pages: 0\n";
    prints("deferral", "256M", &["1"], "off", expected);
}

#[test]
#[ignore = "long: make test-long"]
fn what_is_freed_in_a_pause_is_compacted_after_it() {
    let expected = "freed in the pause: yes\nwrong pages: 0\nwrong pages: 0\n";
    prints("paused", "256M", &["1"], "off", expected);
}

#[test]
#[ignore = "long: make test-long"]
fn locked_memory_that_may_move_is_moved_without_a_further_reason() {
    let expected = "moves: yes\nwrong pages: 0\n";
    prints("allowed", "256M", &["1"], "off", expected);
}

#[test]
#[ignore = "long: make test-long"]
fn many_blocks_that_do_not_move_hide_others_for_a_while_only() {
    let expected = "locked: in more blocks than are remembered\nthe others: move\n\
        wrong pages: 0\nwrong pages: 0\n";
    prints("hidden", "2G", &["2"], "off", expected);
}

#[test]
fn at_0_no_frame_moves_in_the_background() {
    let expected = "at 0: nothing\nat 20: whole\nwrong pages: 0\n";
    for give_back in ["off", "reporting", "shared"] {
        prints("never", "256M", &["2"], give_back, expected);
    }
}
