//! Which unit may use which, in the three crates of the kernel. ARCHITECTURE.md lists the units.

use ebb_layers::{Exception, LayerRules};

/// Checks a crate; the workspace is above the kernel's folder.
fn check(rules: LayerRules<'_>) {
    rules.assert(env!("CARGO_MANIFEST_DIR"));
}

#[test]
fn the_upper_half_points_down() {
    check(LayerRules {
        root: "kernel/src/main.rs",
        layers: &[
            "main.rs", "syscall/", "procfs/", "process/", "fs/", "drivers/", "vm/",
        ],
        exceptions: &[
            Exception::Cycles {
                folder: "process/",
                why: "a task takes signals, a signal wakes and ends tasks, a timer sends signals",
            },
            Exception::Cycles {
                folder: "vm/",
                why: "the methods of page tables and address spaces stand in a file a subject",
            },
            Exception::Cycles {
                folder: "fs/tmpfs/",
                why: "a directory has nodes, and a node may be a directory",
            },
            Exception::Cycles {
                folder: "fs/hostfs/",
                why: "a file has pages, and pages are written to their file",
            },
            Exception::Cycles {
                folder: "fs/epoll/",
                why: "a set has items, and an item tells its set",
            },
            Exception::Import {
                from: "fs/node.rs",
                to: "fs/file.rs",
                why: "a node is opened as a file, and a directory's file lists nodes",
            },
            Exception::Import {
                from: "fs/file.rs",
                to: "fs/locks/mod.rs",
                why: "an open file's locks end with it",
            },
            Exception::Import {
                from: "fs/table.rs",
                to: "fs/locks/mod.rs",
                why: "a process's locks on a file end when it closes the file",
            },
            Exception::Import {
                from: "drivers/port.rs",
                to: "drivers/control.rs",
                why: "a port that is flushed at the VM's end has no thread that hears of its window",
            },
        ],
    });
}

#[test]
fn the_machine_points_down() {
    check(LayerRules {
        root: "kernel/machine/src/lib.rs",
        layers: &[
            "lib.rs",
            "virtio/",
            "uaccess.rs",
            "sync.rs",
            "sched/",
            "memory/",
            "arch/",
        ],
        exceptions: &[
            Exception::Cycles {
                folder: "sched/",
                why: "a switch balances, what is balanced is switched to",
            },
            Exception::Cycles {
                folder: "arch/",
                why: "a machine's clock, interrupts, console and panics serve each other",
            },
        ],
    });
}

#[test]
fn the_logic_points_down() {
    check(LayerRules {
        root: "kernel/logic/src/lib.rs",
        layers: &[
            "lib.rs",
            "access_list.rs core_file.rs psi/ ptrace.rs seccomp.rs vdso.rs",
            "armed.rs bpf.rs by_name.rs carry.rs core_name.rs credentials/ disk/ elf.rs events.rs heap.rs ipc_ids.rs knob/ list.rs locks/ log_ring.rs members.rs mempolicy.rs mount_options.rs nests.rs newc.rs numbers.rs own.rs page_poison.rs path.rs \
             pipe/ priority_queue.rs radix.rs repeats.rs rseq.rs sched/ semaphores.rs signal_set.rs slab.rs socket/ sparse.rs stalls.rs strings.rs tty/ used_slots.rs vma.rs vmemmap/ xattrs.rs",
            "message_queue.rs",
            "errno.rs",
            "lock.rs",
        ],
        exceptions: &[],
    });
}
