//! Tests of settings under /proc and /sys: read, written, refused, and set on the command line.

use crate::ebb;

#[track_caller]
fn script(options: &[&str], script: &str, expected: &str) -> String {
    let mut all = vec!["-m", "128M", "-c", "2", "--verbose"];
    all.extend(options);
    let outcome = ebb::run(300, &all, &["sh", "-c", script]);
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
        "9\n500\n7\npage_hinting_order=11 refused\nmax_fgpt_entries=1001 refused\n\
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
fn a_knob_that_is_not_there_or_a_bad_value_keeps_the_program_from_starting() {
    for (word, why) in [
        ("vm.no_such_knob=1", "there is no such knob"),
        ("vm.swappiness.x=1", "there is no such knob"),
        ("vm.swappiness=abc", "the knob does not take this value"),
        ("vm.swappiness=-1", "the knob does not take this value"),
        ("vm.mmap_min_addr=1", "it can only be read"),
    ] {
        let options = ["-m", "128M", "--quiet", "--sysctl", word];
        let outcome = ebb::run(300, &options, &["echo", "runs"]);
        assert_eq!(outcome.expect(125).out(), "", "{word}");
        let message = format!("ebb: the guest cannot set {word}: {why}\n");
        assert!(outcome.err().starts_with(&message), "{}", outcome.err());
    }
}

#[test]
#[ignore = "long: make test-long"]
fn a_stock_kernel_that_refuses_a_knob_does_not_start_the_program_either() {
    let options = ["-m", "1G", "--kernel", "linux", "--quiet"];
    for (word, why) in [
        ("vm.no_such_knob=1", "there is no such knob"),
        ("vm.swappiness=abc", "the knob does not take this value"),
    ] {
        let all = [&options[..], &["--sysctl", word]].concat();
        let outcome = ebb::run(900, &all, &["echo", "runs"]);
        assert_eq!(outcome.expect(126).out(), "", "{word}");
        let message = format!("cannot set {word}: {why}");
        assert!(outcome.err().contains(&message), "{}", outcome.err());
    }
}

/// Every knob of one word as the boot line takes it, `NAME=VALUE`, with the value that it has.
fn knobs_of_one_word() -> Vec<String> {
    let program = crate::programs::text(crate::programs::path("proc_knobs"));
    let outcome = ebb::run(300, &["-m", "128M"], &[program, "list".to_owned()]);
    let out = outcome.expect(0).out();
    out.lines().map(String::from).collect()
}

#[test]
fn every_knob_can_be_set_on_the_command_line() {
    let knobs = knobs_of_one_word();
    assert!(knobs.len() > 30, "{knobs:?}");
    let mut options = vec!["-m".to_owned(), "128M".to_owned()];
    let mut words = String::new();
    for knob in &knobs {
        if knob.starts_with("vm.") {
            // One that counts only where another one does not is left out.
            if !knob.ends_with("_bytes=0") {
                options.extend(["--sysctl".to_owned(), knob.clone()]);
            }
        } else {
            words.push_str(&format!(" sysctl.{knob}"));
        }
    }
    options.extend(["--append".to_owned(), words.trim().to_owned()]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let outcome = ebb::run(300, &options, &["echo", "runs"]);
    assert_eq!(outcome.expect(0).out(), "runs\n");
}

#[test]
fn pools_can_be_filled_on_the_command_line() {
    for knob in ["vm.nr_hugepages=3", "vm.nr_hugepages_mempolicy=3"] {
        script(
            &["--sysctl", knob, "--sysctl", "vm.compact_memory=1"],
            "grep HugePages_Total /proc/meminfo",
            "HugePages_Total:       3\n",
        );
    }
}

#[test]
fn no_knob_breaks_on_an_odd_value() {
    let program = crate::programs::text(crate::programs::path("proc_knobs"));
    let outcome = ebb::run(300, &["-m", "256M", "-c", "2"], &[program]);
    assert_eq!(outcome.expect(0).out(), "enough files: 1, knobs: 1\n");
}

#[test]
fn boot_words_with_odd_values_break_nothing() {
    const WORDS: [&str; 18] = [
        "hugepages",
        "hugepagesz",
        "default_hugepagesz",
        "hugetlb_free_vmemmap",
        "transparent_hugepage",
        "page_reporting.page_reporting_order",
        "page_alloc.shuffle",
        "page_poison",
        "init_on_free",
        "init_on_alloc",
        "page_hinting.page_hinting_order",
        "page_hinting.max_fgpt_entries",
        "page_hinting.hyperlist_threshold",
        "ebb.aslr",
        "ebb.epoch",
        "ebb.give_back",
        "ebb.hostname",
        "ebb.trace",
    ];
    for value in [
        "",
        "=",
        "=x",
        "=-1",
        "=0",
        "=1",
        "=99999999999999999999",
        "=2M",
    ] {
        let line: Vec<String> = WORDS.iter().map(|word| format!("{word}{value}")).collect();
        let options = ["-m", "128M", "--quiet", "--append", &line.join(" ")];
        let outcome = ebb::run(300, &options, &["echo", "runs"]);
        assert_eq!(outcome.expect(0).out(), "runs\n", "{value}");
    }
}

#[test]
fn an_unsupported_call_is_named_once() {
    let program = crate::programs::text(crate::programs::path("identity"));
    let outcome = ebb::run(300, &["-m", "128M", "-c", "2", "--verbose"], &[program]);
    let log = outcome.expect(0).err();
    // The program makes call 9999 once. The log names no call beyond the table.
    assert!(log.matches("not supported").count() <= 3, "{log}");
}
