//! docs/knobs.md names every knob that the tables have, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The string literal that is the first argument of a call whose inside this is.
fn first_string(inside: &str) -> Option<&str> {
    inside.trim_start().strip_prefix('"')?.split('"').next()
}

/// The paths of `Entry::knob` and `Entry::trigger` lines in a table's source, below `mount`.
fn knobs(source: &str, mount: &str) -> BTreeSet<String> {
    ["Entry::knob(", "Entry::trigger("]
        .into_iter()
        .flat_map(|call| source.split(call).skip(1))
        .filter_map(first_string)
        .map(|path| format!("{mount}/{path}"))
        .collect()
}

#[test]
fn the_page_and_the_tables_name_the_same_knobs() {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(kernel.join(path)).expect(path);
    let mut known = knobs(&read("src/procfs/proc/sysctl.rs"), "/proc");
    known.extend(knobs(&read("src/procfs/proc/net_sysctl.rs"), "/proc"));
    known.extend(knobs(&read("src/procfs/proc/ipc_knobs.rs"), "/proc"));
    known.extend(knobs(&read("src/procfs/proc/writeback_knobs.rs"), "/proc"));
    known.extend(knobs(&read("src/procfs/proc/system.rs"), "/proc"));
    known.extend(knobs(&read("src/procfs/proc/scheduling.rs"), "/proc"));
    known.extend(knobs(&read("src/procfs/sys/mod.rs"), "/sys"));
    let pool = read("src/procfs/hugepages.rs");
    let (of_proc, of_sys) = pool.split_once("const SYS").expect("three tables");
    known.extend(knobs(of_proc, "/proc"));
    known.extend(knobs(of_sys, "/sys"));
    let process = read("src/procfs/proc/pid/mod.rs");
    let process = process.replace("..knob(", " knob(");
    let of_process = process.split(" knob(").skip(1).filter_map(first_string);
    known.extend(of_process.map(|name| format!("/proc/PID/{name}")));
    assert!(known.len() > 5, "the tables were not found");

    let page = read("../docs/knobs.md");
    let writable = page.split("## Writable files").nth(1).expect("the section");
    let writable = writable.split("## ").next().expect("its end");
    let named: BTreeSet<String> = writable
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(String::from)
        .collect();
    assert_eq!(named, known);
}
