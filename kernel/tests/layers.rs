//! Who may know whom, in the three crates of the kernel: ARCHITECTURE.md draws it.

use ebb_layers::{Exception, House};

/// Checks a crate; the workspace is above the kernel's folder.
fn check(house: House<'_>) {
    house.assert(env!("CARGO_MANIFEST_DIR"));
}

#[test]
fn the_upper_half_points_down() {
    check(House {
        root: "kernel/src/main.rs",
        floors: &[
            "main.rs", "syscall/", "procfs/", "process/", "fs/", "drivers/", "vm/",
        ],
        exceptions: &[Exception::Knot {
            folder: "process/",
            why: "a task takes signals, a signal wakes and ends tasks, a timer sends signals",
        }],
    });
}

#[test]
fn the_machine_points_down() {
    check(House {
        root: "kernel/machine/src/lib.rs",
        floors: &["lib.rs", "sync.rs", "sched/", "memory/", "arch/"],
        exceptions: &[],
    });
}

#[test]
fn the_logic_points_down() {
    check(House {
        root: "kernel/logic/src/lib.rs",
        floors: &[
            "lib.rs",
            "disk/ elf.rs heap.rs locks/ members.rs newc.rs numbers.rs path.rs pipe/ radix.rs sched/ \
             signal_set.rs slab.rs strings.rs vma.rs",
            "errno.rs lock.rs",
        ],
        exceptions: &[],
    });
}

