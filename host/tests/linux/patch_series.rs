//! Runs the commands that the patch series about the descriptors of huge pages shows, on Ebb's
//! kernel and on a stock Linux. Both must print the same except for the numbers.

use crate::ebb;

/// By default, Linux clears the memory that it allocates. That would take too long for the large
/// pools here.
const NOT_CLEARED: &str = "init_on_alloc=0";

/// Returns the output of a shell in a guest, with both streams in one. The guest keeps its memory,
/// also if the host is short of it.
fn shell(memory: &str, words: &str, kernel: &[&str], script: &str) -> String {
    let words = format!("{NOT_CLEARED} {words}");
    let options = [
        &["-m", memory, "--give-back", "off", "--append", &words],
        kernel,
    ]
    .concat();
    let script = format!("exec 2>&1; {script}");
    let program = ["busybox", "sh", "-c", &script].map(str::to_owned);
    ebb::run(900, &options, &program).expect(0).out()
}

/// Returns the text with `N` for each number and one space for several.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    for line in text.lines() {
        for word in line.split_ascii_whitespace() {
            let mut digits = false;
            for letter in word.chars() {
                let number = letter.is_ascii_digit() || (digits && letter == '.');
                if !(number && digits) {
                    plain.push(if number { 'N' } else { letter });
                }
                digits = number;
            }
            plain.push(' ');
        }
        plain.push('\n');
    }
    plain
}

/// Returns the lines whose numbers must be equal, too: those about the pool and its size.
fn of_the_pool(text: &str) -> Vec<&str> {
    let is_its = |line: &&str| {
        line.starts_with("Huge") || line.bytes().all(|letter| letter.is_ascii_digit())
    };
    text.lines().filter(is_its).collect()
}

#[test]
fn numbers_are_left_out() {
    let line = "HugePages_Total:   10240\nreal\t0m 1.86s";
    assert_eq!(without_numbers(line), "HugePages_Total: N \nreal Nm Ns \n");
}

/// Shows that the first commands of the series, "1) Allocating 10240 2MB hugetlb pages" and "2)
/// Freeing", have the expected results.
#[test]
fn allocating_and_freeing_10240_pages() {
    let script = "cat /proc/sys/vm/hugetlb_optimize_vmemmap; cat /proc/meminfo; free -m; \
                  time echo 10240 > /proc/sys/vm/nr_hugepages; \
                  cat /proc/sys/vm/nr_hugepages; cat /proc/meminfo; free -m; \
                  time echo 0 > /proc/sys/vm/nr_hugepages; \
                  cat /proc/sys/vm/nr_hugepages; cat /proc/meminfo; free -m";
    for free_vmemmap in ["on", "off"] {
        let words = format!("hugetlb_free_vmemmap={free_vmemmap}");
        let linux = shell("24G", &words, &["--kernel", "linux"], script);
        let ours = shell("24G", &words, &[], script);
        // Linux has this line since 6.16.
        let (balloon, ours): (Vec<_>, Vec<_>) = ours
            .split_inclusive('\n')
            .partition(|line| line.starts_with("Balloon:"));
        assert_eq!(balloon.len(), 3, "one for each table");
        let ours = ours.concat();
        assert_eq!(without_numbers(&ours), without_numbers(&linux), "{words}");
        assert_eq!(of_the_pool(&ours), of_the_pool(&linux), "{words}");
        assert!(ours.contains("HugePages_Free:    10240\n"), "{ours}");
        for said in [&ours, &linux] {
            // CommitLimit falls by half of the pool, less the memory of the freed descriptors.
            let limit = kib(said, "CommitLimit:");
            let fell = limit[0] - limit[1];
            assert!((9 << 20..=10 << 20).contains(&fell), "{fell}: {said}");
        }
    }
}

/// Shows the testers' table, `free -m` with a pool that is made at boot, with a smaller pool than
/// theirs. Rows 1.21 and 1.22 of [docs/series.md](../../../docs/series.md) have the commands with
/// their sizes, and what these pools save.
#[test]
#[ignore = "long: make test-long"]
fn what_a_pool_from_boot_on_leaves() {
    const POOL_MIB: u64 = 4 << 10;
    // The size of all descriptors of the pool in MiB.
    let all = POOL_MIB / 64;
    for (pages, linux_keeps) in [
        // Linux keeps one of eight pages of descriptors for each huge page.
        ("hugepagesz=2M hugepages=2048", all / 8),
        ("hugepagesz=1G hugepages=4", 0),
    ] {
        let script = "free -m; grep -E 'HugePages_Total|Hugepagesize|^Hugetlb' /proc/meminfo";
        let told = |kernel: &[&str]| {
            ["on", "off"].map(|free_vmemmap| {
                let words = format!("hugetlb_free_vmemmap={free_vmemmap} {pages}");
                shell("10G", &words, kernel, script)
            })
        };
        let (ours, linux) = (told(&[]), told(&["--kernel", "linux"]));
        for (ours, linux) in ours.iter().zip(&linux) {
            assert_eq!(without_numbers(ours), without_numbers(linux), "{pages}");
            assert_eq!(of_the_pool(ours), of_the_pool(linux), "{pages}");
        }
        let gained = |[on, off]: &[String; 2]| total_mib(on) - total_mib(off);
        assert!(gained(&ours) + 1 >= all, "{pages}: {ours:?}");
        assert!(
            gained(&linux) <= all - linux_keeps + 1,
            "{pages}: {linux:?}"
        );
    }
}

/// Returns all values of a field of `/proc/meminfo` in `text`, in KiB.
fn kib(text: &str, name: &str) -> Vec<u64> {
    let values = text.lines().filter_map(|line| line.strip_prefix(name));
    let numbers = values.filter_map(|value| value.split_ascii_whitespace().next()?.parse().ok());
    numbers.collect()
}

/// Returns the total memory in MiB from the output of `free -m`.
fn total_mib(free: &str) -> u64 {
    let line = free.lines().find_map(|line| line.strip_prefix("Mem:"));
    let total = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    total.unwrap_or_else(|| panic!("no total: {free}"))
}
