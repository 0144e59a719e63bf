//! Tests of compaction: fragmented free memory becomes whole blocks, and programs do not notice it.

use crate::scratch::Scratch;
use crate::{ebb, programs};

/// Returns the output of a program in a guest.
fn out(options: &[&str], words: &[&str]) -> String {
    let mut program = vec![programs::text(programs::path(words[0]))];
    program.extend(words[1..].iter().map(|word| (*word).to_owned()));
    ebb::run(600, options, &program).expect(0).out()
}

/// Asserts the output of a program on one CPU and on several. The mode is `off`, so no isolated
/// block disturbs a test that counts whole free blocks.
#[track_caller]
fn prints(words: &[&str], expected: &str) {
    prints_with("off", words, expected);
}

/// As [`prints`], with the mode `give_back`.
#[track_caller]
fn prints_with(give_back: &str, words: &[&str], expected: &str) {
    for cpus in ["1", "4"] {
        let options = ["-m", "256M", "-c", cpus, "--give-back", give_back];
        let said = out(&options, words);
        assert_eq!(said, expected, "{cpus} CPUs");
    }
}

#[test]
fn who_asks_gets_whole_memory() {
    prints(
        &["compaction", "ask"],
        "before: in pieces\nafter: whole\nmoved: many\nwrong pages: 0\n",
    );
}

#[test]
fn it_becomes_whole_before_any_request() {
    // The host takes whole blocks, so the guest compacts memory for it.
    prints_with(
        "shared",
        &["compaction", "wait"],
        "after a while: whole\nwrong pages: 0\n",
    );
}

#[test]
fn huge_pages_are_had_on_demand() {
    // Nothing else empties blocks at this time.
    for cpus in ["1", "4"] {
        let options = ["-m", "256M", "-c", cpus, "--give-back", "off"];
        let said = out(&options, &["compaction", "demand"]);
        let expected = "huge pages: all\nstalls: some\neach got one: yes\nwrong pages: 0\n";
        assert_eq!(said, expected, "{cpus} CPUs");
    }
}

#[test]
fn where_no_request_may_wait_only_whole_blocks_serve() {
    let program = programs::text(programs::path("compaction"));
    let script = "for word in always defer defer+madvise madvise never; do
                      echo $word > /sys/kernel/mm/transparent_hugepage/defrag &&
                      cat /sys/kernel/mm/transparent_hugepage/defrag
                  done
                  echo much > /sys/kernel/mm/transparent_hugepage/defrag || /compaction never";
    let file = format!("{program}:/compaction");
    // Nothing else empties blocks.
    let options = [
        "-m",
        "256M",
        "-c",
        "2",
        "--give-back",
        "off",
        "--busybox",
        "--file",
        &file,
    ];
    let outcome = ebb::run(600, &options, &["sh", "-c", script]);
    let expected = "[always] defer defer+madvise madvise never\n\
                    always [defer] defer+madvise madvise never\n\
                    always defer [defer+madvise] madvise never\n\
                    always defer defer+madvise [madvise] never\n\
                    always defer defer+madvise madvise [never]\n\
                    huge pages: what was whole\nstalls: none\nwrong pages: 0\n";
    assert_eq!(outcome.expect(0).out(), expected);
}

#[test]
#[ignore = "long: make test-long"]
fn the_pool_grows_where_memory_is_in_pieces() {
    prints(&["compaction", "pool"], "pool: all\nwrong pages: 0\n");
}

#[test]
fn what_mremap_has_moved_is_found() {
    prints(&["compaction", "moved"], "after: whole\nwrong pages: 0\n");
}

#[test]
fn what_processes_share_moves_for_all_of_them() {
    let children = "child: 0\n".repeat(8);
    prints(
        &["compaction", "shared"],
        &format!("after: whole\nshared still: yes\n{children}wrong pages: 0\n"),
    );
}

#[test]
#[ignore = "long: make test-long"]
fn pages_of_files_move() {
    let expected = "before: in pieces\nafter: whole\nread: all, wrong words: 0\n";
    prints(&["compaction", "file"], expected);
    prints(&["compaction", "mapping"], expected);
}

/// Asserts that cached pages of `path` move in guests with the options `more`, mapped or not.
#[track_caller]
fn cached_pages_move(path: &str, more: &[&str]) {
    let expected = "before: in pieces\nafter: whole\nmoved: many\nwrong words: 0\n";
    for (cpus, part) in [
        ("1", "cached"),
        ("4", "cached"),
        ("1", "cached-mapping"),
        ("4", "cached-mapping"),
    ] {
        // Nothing moves before it is asked for.
        let options = ["-m", "256M", "-c", cpus, "--give-back", "off"];
        let still = ["--sysctl", "vm.compaction_proactiveness=0"];
        let options = [&options[..], &still, more].concat();
        let said = out(&options, &["compaction", part, path]);
        assert_eq!(said, expected, "{part} of {path}, {cpus} CPUs");
    }
}

#[test]
fn cached_pages_of_a_disk_move() {
    cached_pages_move("/dev/vda", &["--disk", "ram:64M"]);
}

#[test]
fn cached_pages_of_a_volume_move() {
    let folder = Scratch::new("volume-moves");
    let volume = format!("{}:/v", folder.folder().display());
    cached_pages_move("/v/file", &["--volume", &volume]);
}

#[test]
fn page_tables_move() {
    prints(
        &["compaction", "tables"],
        "before: in pieces\nafter: whole\nmoved: many\nchild: 0\nwrong words: 0\n",
    );
}

#[test]
#[ignore = "long: make test-long"]
fn page_tables_in_reserve_move() {
    let expected = "huge pages: all\nmoved: many\nhuge pages: 0, wrong words: 0\n";
    for cpus in ["1", "4"] {
        let options = ["-m", "1G", "-c", cpus, "--give-back", "off"];
        assert_eq!(
            out(&options, &["compaction", "reserve"]),
            expected,
            "{cpus} CPUs"
        );
    }
}

#[test]
fn the_proactiveness_is_0_to_100() {
    let script = "cd /proc/sys/vm && cat compaction_proactiveness &&
                  for value in 0 100 101 -1 x; do
                      echo $value > compaction_proactiveness; cat compaction_proactiveness
                  done 2> /dev/null
                  echo anything > compact_memory && echo 1 > /sys/devices/system/node/node0/compact";
    let outcome = ebb::run(300, &["--busybox"], &["sh", "-c", script]);
    assert_eq!(outcome.expect(0).out(), "20\n0\n100\n100\n100\n100\n");
}

/// Runs a storm while other processes request compaction without a pause.
#[track_caller]
fn storm(cpus: &str, name: &str, words: &[&str]) {
    let compacting = programs::text(programs::path("compacting"));
    let file = format!("{}:/storm", programs::text(programs::path(name)));
    let mut program = vec![compacting, "1".to_owned(), "/storm".to_owned()];
    program.extend(words.iter().map(|word| (*word).to_owned()));
    let options = [
        "-m", "256M", "-c", cpus, "--file", &file, "--disk", "ram:4M",
    ];
    let outcome = ebb::run(900, &options, &program);
    let said = outcome.expect(0).err();
    let moved = said
        .lines()
        .find_map(|line| line.strip_prefix("moved ")?.strip_suffix(" frames"))
        .and_then(|frames| frames.parse::<u64>().ok());
    assert!(moved.is_some_and(|frames| frames > 1000), "{said}");
}

#[test]
#[ignore = "long: make test-long"]
fn models_find_nothing_while_frames_move_on_one_cpu() {
    storm("1", "rust-vmstorm", &["5", "15s", "disk=/dev/vda"]);
}

#[test]
fn models_find_nothing_while_frames_move_on_two_cpus() {
    storm("2", "rust-vmstorm", &["6", "15s"]);
}

#[test]
#[ignore = "long: make test-long"]
fn models_find_nothing_while_frames_move_on_four_cpus() {
    storm("4", "rust-vmstorm", &["7", "15s"]);
}

#[test]
fn what_is_pinned_stays_while_frames_move() {
    storm("4", "pinned", &[]);
}

#[test]
fn devices_write_to_pages_that_are_to_move() {
    storm("4", "direct", &["/dev/vda", "4", "20"]);
}

#[test]
fn forks_while_frames_move() {
    storm("4", "fork_storm", &["16", "100", "200"]);
}

#[test]
fn locked_memory_stays_if_that_is_asked_for() {
    let expected = "locked: in pieces\nallowed: whole\nwrong pages: 0\n";
    for cpus in ["1", "4"] {
        // Each locked page is an area of its own.
        let options = [
            "-m",
            "256M",
            "-c",
            cpus,
            "--give-back",
            "off",
            "--sysctl",
            "vm.max_map_count=200000",
            "--sysctl",
            "vm.compaction_proactiveness=0",
        ];
        assert_eq!(
            out(&options, &["compaction", "locked"]),
            expected,
            "{cpus} CPUs"
        );
    }
}

#[test]
fn its_knobs_and_figures_are_those_of_linux() {
    let script = "cd /proc/sys/vm; cat extfrag_threshold compact_unevictable_allowed
                  for value in 0 1000 1001 -1 x; do echo $value > extfrag_threshold; done 2>&1
                  for value in 0 1 2; do echo $value > compact_unevictable_allowed; done 2>&1
                  cat extfrag_threshold compact_unevictable_allowed
                  cd /sys/kernel/debug/extfrag; for file in unusable_index extfrag_index; do
                      tr -s ' ' < $file | cut -d' ' -f1-3,4-5; tr -s ' ' < $file | wc -w
                  done";
    let options = ["-m", "256M", "-c", "1", "--busybox"];
    let outcome = ebb::run(300, &options, &["sh", "-c", script]);
    let refused = "sh: write error: Invalid argument\n";
    let expected = format!(
        "500\n1\n{}{refused}1000\n1\n\
         Node 0, zone DMA32 0.000\n15\nNode 0, zone DMA32 -1.000\n15\n",
        refused.repeat(3)
    );
    assert_eq!(outcome.expect(0).out(), expected);
}

#[test]
#[ignore = "long: make test-long"]
fn nothing_moves_for_what_is_reported_where_it_is() {
    let pieces = (0..10)
        .map(|order| (order, 1 << order))
        .chain([(10, 16384)]);
    let mut expected: String = pieces
        .map(|(order, pages)| {
            format!("order {order}, pieces of {pages}: reported, not moved, wrong pages: 0\n")
        })
        .collect();
    // Pieces that are too small are collected.
    for (order, pages) in [(3, 4), (9, 256)] {
        expected += &format!("order {order}, pieces of {pages}: reported, moved, wrong pages: 0\n");
    }
    expected += "requests > 0 && requests <= ranges && ranges <= pages: yes\n\
                 pages > 3 * SIZE / PAGE: yes\n";
    let options = ["-m", "256M", "-c", "2", "--give-back", "reporting"];
    let right = |out: &String| *out == expected;
    let out = ebb::while_the_host_has_memory(right, || out(&options, &["reported"]));
    assert_eq!(out, expected);
}
