//! Tests of settings under /proc and /sys: read, written, refused, and set on the command line.

use crate::ebb;

#[track_caller]
fn script(options: &[&str], script: &str, expected: &str) -> String {
    let mut all = vec!["-m", "128M", "-c", "2", "-v"];
    all.extend(options);
    let outcome = ebb::run(60, &all, &["sh", "-c", script]);
    assert_eq!(outcome.expect(0).out(), expected, "{}", outcome.err());
    outcome.err()
}

#[test]
fn the_order_of_the_command_line_holds_in_whichever_way_memory_goes_back() {
    script(
        &["--reporting-order", "4"],
        "cat /sys/module/page_*/parameters/page_*_order",
        "4\n4\n",
    );
}

#[test]
fn the_reporting_order_takes_0_to_10_and_nothing_else() {
    script(
        &[],
        "cd /sys/module/page_reporting/parameters; cat page_reporting_order; \
         for o in 0 10 5; do echo $o > page_reporting_order; cat page_reporting_order; done; \
         for o in 11 -1 x '' 99999999999; do \
            (echo $o > page_reporting_order) 2> /dev/null || echo refused; done; \
         cat page_reporting_order",
        "9\n0\n10\n5\nrefused\nrefused\nrefused\nrefused\nrefused\n5\n",
    );
}

#[test]
fn the_knobs_of_hinting_take_what_makes_sense_and_nothing_else() {
    script(
        &["--append", "page_hinting.hyperlist_threshold=7"],
        "cd /sys/module/page_hinting/parameters; \
         cat page_hinting_order max_fgpt_entries hyperlist_threshold; \
         for set in page_hinting_order=0 page_hinting_order=10 page_hinting_order=11 \
            max_fgpt_entries=1 max_fgpt_entries=1000 max_fgpt_entries=1001 max_fgpt_entries=0 \
            hyperlist_threshold=256 hyperlist_threshold=257 hyperlist_threshold=0 \
            hyperlist_threshold=x; do \
            (echo ${set#*=} > ${set%=*}) 2> /dev/null || echo $set refused; done; \
         cat page_hinting_order max_fgpt_entries hyperlist_threshold",
        "9\n32\n7\npage_hinting_order=11 refused\nmax_fgpt_entries=1001 refused\n\
         max_fgpt_entries=0 refused\nhyperlist_threshold=257 refused\n\
         hyperlist_threshold=0 refused\nhyperlist_threshold=x refused\n10\n1000\n256\n",
    );
}

#[test]
fn knobs_are_set_before_the_program_starts() {
    script(
        &[
            "--reporting-order",
            "3",
            "--sysctl",
            "vm.min_free_kbytes=4096",
        ],
        "cat /sys/module/page_reporting/parameters/page_reporting_order \
            /proc/sys/vm/min_free_kbytes; sysctl -n vm.min_free_kbytes; \
         sysctl -w vm.min_free_kbytes=2048 > /dev/null; cat /proc/sys/vm/min_free_kbytes",
        "3\n4096\n4096\n2048\n",
    );
}

#[test]
fn a_knob_that_is_not_there_or_a_bad_value_is_named() {
    let log = script(
        &["--sysctl", "vm.no_such_knob=1"],
        "echo runs all the same",
        "runs all the same\n",
    );
    assert!(log.contains("no_such_knob"), "{log}");
    let log = script(
        &["--sysctl", "vm.min_free_kbytes=much"],
        "echo runs",
        "runs\n",
    );
    assert!(log.contains("min_free_kbytes"), "{log}");
}

#[test]
fn an_unsupported_call_is_named_once() {
    let program = crate::programs::text(crate::programs::path("identity"));
    let outcome = ebb::run(60, &["-m", "128M", "-c", "2", "-v"], &[program]);
    let log = outcome.expect(0).err();
    // The program makes call 9999 once. The log names no call beyond the table.
    assert!(log.matches("not supported").count() <= 3, "{log}");
}
