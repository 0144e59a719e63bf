//! Tests of the pools of huge pages as programs see them, compared with a stock Linux call by call
//! and counter by counter.

use crate::{ebb, experiments, programs};

/// Returns the output of a program in a guest.
fn out(options: &[&str], words: &[&str]) -> String {
    let mut program = vec![programs::text(programs::path(words[0]))];
    program.extend(words[1..].iter().map(|word| (*word).to_owned()));
    let outcome = ebb::run(600, options, &program);
    outcome.expect(0).out()
}

#[track_caller]
fn is_as_on_linux_with(program: &str, memory: &str, whole: &str, guests: &[[&str; 4]]) {
    let words = [programs::text(programs::path(program))];
    let end = "in the end: Total 0 Free 0 Rsvd 0 Surp 0\n";
    let linux = ebb::linux(600, &["-m", memory, "-c", "2"], &words, |said| {
        said.ends_with(end) && said.contains(whole)
    });
    for options in guests {
        assert_eq!(out(options, &[program]), linux, "{options:?}");
    }
}

#[track_caller]
fn is_as_on_linux(program: &str) {
    let guests = [["-m", "256M", "-c", "1"], ["-m", "512M", "-c", "4"]];
    is_as_on_linux_with(program, "512M", "", &guests);
}

#[test]
fn the_pool_is_as_on_linux() {
    is_as_on_linux("hugetlb");
}

#[test]
fn files_of_huge_pages_are_as_on_linux() {
    is_as_on_linux("hugetlbfs");
}

#[test]
#[ignore = "long: make test-long"]
fn its_corners_are_as_on_linux() {
    is_as_on_linux("hugetlb_edges");
}

#[test]
fn a_mapping_of_it_that_is_replaced_is_never_absent() {
    let pages = "vm.nr_overcommit_hugepages=24";
    let options = ["-m", "512M", "-c", "2", "--sysctl", pages];
    let said = out(&options, &["replacing", "huge"]);
    assert_eq!(said, "huge: 0 calls found nothing\n");
}

#[test]
#[ignore = "long: make test-long"]
fn pages_of_1_gib_are_as_on_linux() {
    let guests = [["-m", "8G", "-c", "2"]];
    is_as_on_linux_with("hugetlb_gigantic", "8G", "\nthree: 3 3 0 0,", &guests);
}

#[test]
#[ignore = "long: make test-long"]
fn boot_words_make_both_pools_as_on_linux() {
    let shown = "cd /sys/kernel/mm/hugepages; grep -H . */*_hugepages; grep -i -E 'huge(pages_|pagesize|tlb)' \
                 /proc/meminfo; cat /proc/sys/vm/nr_hugepages";
    for words in [
        "hugepagesz=1G hugepages=2 hugepagesz=2M hugepages=10",
        "default_hugepagesz=1G hugepages=1 hugepagesz=2M hugepages=5",
        "hugepages=7",
        "hugepagesz=1G hugepages=9",
    ] {
        let told = |kernel: &[&str]| {
            let options = [&["-m", "6G", "--append", words], kernel].concat();
            let program = ["busybox", "sh", "-c", shown].map(str::to_owned);
            ebb::run(600, &options, &program).expect(0).out()
        };
        assert_eq!(told(&[]), told(&["--kernel", "linux"]), "{words}");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn nothing_is_lost_while_pages_of_1_gib_come_and_go() {
    for (cpus, seed) in [("1", "5"), ("2", "5"), ("4", "6")] {
        let storm = ["hugetlb_gigantic_storm", "6", "60", seed];
        let said = out(&["-m", "5G", "-c", cpus], &storm);
        let right = "right, with pages of all sizes: yes\n\
                     in the end: Total 0 Free 0 Rsvd 0 Surp 0\nHugetlb 0\nlost: little\n";
        assert_eq!(said, right, "seed {seed}");
    }
}

/// Shows that a pool that shrinks allocates the unmovable memory for its page descriptors from the
/// lowest GiB, for every order of the pool's pages that a report to the host can leave.
#[test]
#[ignore = "long: make test-long"]
fn a_pool_that_had_all_memory_leaves_room_for_a_page_of_1_gib() {
    let script = "cd /sys/kernel/mm/hugepages; \
                  for round in 1 2; do \
                  echo 100000 > hugepages-2048kB/nr_hugepages; sleep 2; \
                  test $(cat hugepages-2048kB/nr_hugepages) -gt 1400 || echo no pool; \
                  echo 0 > hugepages-2048kB/nr_hugepages; \
                  echo 1 > hugepages-1048576kB/nr_hugepages; cat hugepages-1048576kB/nr_hugepages; \
                  echo 0 > hugepages-1048576kB/nr_hugepages; done";
    for mode in ["shared", "hinting", "reporting", "off"] {
        let options = ["-m", "3G", "-c", "2", "--give-back", mode];
        let said = ebb::run(300, &options, &["sh", "-c", script]);
        assert_eq!(said.expect(0).out(), "1\n1\n", "{mode}");
    }
}

/// Shows that a page of 1 GiB is made of memory that could not move when it was last compacted, and
/// of memory that another CPU has in its cache while it runs a program.
#[test]
fn a_page_of_1_gib_is_made_of_memory_that_was_in_use_a_moment_ago() {
    let options = ["-m", "3G", "-c", "2"];
    let said = out(&options, &["gib_in_use", "locked"]);
    assert_eq!(said, "pages of 1 GiB: 1\nwrong pages: 0\n");
    let said = out(&options, &["gib_in_use", "cached"]);
    assert_eq!(said, "pages of 1 GiB: 1\n");
}

/// Shows that no frame moves in vain for a page of 1 GiB where pages of 2 MiB lie in all memory.
#[test]
fn nothing_moves_for_a_page_of_1_gib_that_pages_of_2_mib_prevent() {
    let still = ["--sysctl", "vm.compaction_proactiveness=0"];
    let options = [&["-m", "3G", "-c", "2"][..], &still].concat();
    let said = out(&options, &["gib_in_use", "pooled"]);
    assert_eq!(said, "pages of 1 GiB: 0\nmoved: nothing\n");
}

/// Shows that a pool that shrinks page by page does not look at all its pages each time.
#[test]
fn a_page_goes_back_from_a_large_pool_as_from_a_small_one() {
    let instructions = |pages: &str| -> f64 {
        let program = programs::text(&experiments::program());
        let words = [&program, "hugetlb", pages, "--each"];
        let said = ebb::run(600, &["--icount", "-m", "3G", "-c", "1"], &words);
        let said = said.expect(0).out();
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("hugetlb: free page: "));
        let number = line.and_then(|line| line.split(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("{said}"))
    };
    let (few, many) = (instructions("128"), instructions("1024"));
    assert!(
        many < few * 1.5,
        "{many} instructions, and {few} in a pool of 128 pages"
    );
}

/// Shows that a task which waits for a page that is being reported does not keep a CPU from the
/// reporter.
#[test]
fn no_cpu_stops_where_pages_are_wanted_that_the_host_is_told_of() {
    let storm = ["hugetlb_told_storm", "6", "30", "200"];
    let said = out(&["-m", "1G", "-c", "4"], &storm);
    let right = "right\nin the end: Total 0 Free 0 Rsvd 0 Surp 0\n";
    assert_eq!(said, right);
}

/// Shows that programs see the same if the page descriptors of huge pages are kept.
#[test]
fn the_pool_without_the_exchange_is_as_with_it() {
    let with = out(&["-m", "256M"], &["hugetlb"]);
    let without = ["-m", "256M", "--append", "hugetlb_free_vmemmap=off"];
    assert_eq!(out(&without, &["hugetlb"]), with);
}

/// Shows that `hugetlb_optimize_vmemmap` holds for pages that join the pool later. Those in it stay
/// as they are. The switch takes any number, as on Linux, and all but 0 read as 1.
#[test]
fn the_exchange_can_be_set_for_pages_that_join_later() {
    let script = "total() { awk '/^MemTotal/ { print $2 }' /proc/meminfo; }
        pool() { echo $1 > /proc/sys/vm/hugetlb_optimize_vmemmap; echo $2 > /proc/sys/vm/nr_hugepages; total; }
        echo 7 > /proc/sys/vm/hugetlb_optimize_vmemmap; cat /proc/sys/vm/hugetlb_optimize_vmemmap
        total; pool 0 16; pool 1 16; pool 1 32; pool 0 32; pool 0 48; pool 1 64";
    let words = ["busybox", "sh", "-c", script].map(str::to_owned);
    let said = ebb::run(600, &["-m", "512M", "-c", "1"], &words);
    let said = said.expect(0).out();
    let (switch, totals) = said.split_once('\n').expect("several lines");
    assert_eq!(switch, "1");
    let totals: Vec<u64> = totals
        .lines()
        .map(|line| line.parse().expect("a number of KiB"))
        .collect();
    // The descriptors of 16 huge pages are 512 KiB.
    let bare = totals[0];
    let grown: Vec<u64> = totals.iter().map(|total| total - bare).collect();
    assert_eq!(grown, [0, 0, 0, 512, 512, 512, 1024], "{said}");
}

#[test]
fn nothing_is_lost_while_the_pool_changes_its_size() {
    for (memory, cpus, most) in [
        ("128M", "1", "30"),
        ("256M", "2", "80"),
        ("256M", "4", "80"),
    ] {
        let said = out(
            &["-m", memory, "-c", cpus],
            &["hugetlb_storm", "4", "40", most],
        );
        let right = said
            .lines()
            .filter(|line| line.ends_with(": right"))
            .count();
        assert_eq!(right, 4, "{said}");
        let end = "in the end: total 0, free 0, reserved 0, surplus 0\naccount: settled\n";
        assert!(said.ends_with(end), "{said}");
    }
}

/// Shows that pages that leave the pool carry their own descriptors if no frame is free for them,
/// and become whole again when memory is free.
#[test]
#[ignore = "long: make test-long"]
fn a_full_memory_refuses_no_page_its_way_back() {
    let expected = |carried| {
        format!(
            "pool: 64\npool: 0, carried: {carried}\ncarried: 0\nwhat stayed: right\nback: all\n\
             pool: 64\naccount: settled\n"
        )
    };
    let said = out(&["-m", "256M", "-c", "1"], &["hugetlb_full", "144"]);
    assert_eq!(said, expected("some"));
    // With two CPUs the caches of free frames decide if the last ones suffice.
    let said = out(&["-m", "256M", "-c", "2"], &["hugetlb_full"]);
    let known = [expected("some"), expected("none")];
    assert!(known.contains(&said), "{said}");
}

/// Shows that an owner gets its pages even if a CPU stops while it holds a page, with more CPUs
/// than the host has.
#[test]
#[ignore = "long: make test-long"]
fn an_owner_always_has_its_pages() {
    for cpus in ["1", "4", "16"] {
        let said = out(&["-m", "256M", "-c", cpus], &["hugetlb_owner", "8", "100"]);
        assert_eq!(said, "right\naccount: settled\n", "{cpus} CPUs");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn nothing_is_lost_while_files_come_and_go() {
    for (memory, cpus, most, seed) in [
        ("256M", "4", "60", "13"),
        ("128M", "2", "30", "2"),
        ("64M", "1", "20", "3"),
    ] {
        let said = out(
            &["-m", memory, "-c", cpus],
            &["hugetlb_files_storm", "6", "150", most, seed],
        );
        let right = "right: Total 0 Free 0 Rsvd 0 Surp 0\n";
        assert_eq!(
            said,
            format!("{right}{right}account: settled\n"),
            "seed {seed}"
        );
    }
}

#[test]
#[ignore = "long: make test-long"]
fn no_call_meets_half_a_page() {
    for (cpus, seed) in [("1", "1"), ("2", "2"), ("4", "3")] {
        let storm = ["hugetlb_parts_storm", "2000", seed];
        let said = out(&["-m", "256M", "-c", cpus], &storm);
        assert_eq!(
            said, "in the end: Total 0 Free 0 Rsvd 0 Surp 0\naccount: settled\n",
            "seed {seed}"
        );
    }
}

#[test]
#[ignore = "long: make test-long"]
fn surplus_pages_that_cannot_be_made_cost_the_pool_nothing() {
    let said = out(&["-m", "128M", "-c", "4"], &["hugetlb_surplus", "4000"]);
    let expected =
        "at last: Total 6 Free 6 Rsvd 0 Surp 0\nin the end: Total 0 Free 0 Rsvd 0 Surp 0\n";
    assert_eq!(said, expected);
}
