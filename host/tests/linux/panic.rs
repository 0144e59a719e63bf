//! When the guest kernel itself gives up, ebb says so and shows what it said last.

use crate::{ebb, programs};

#[test]
fn a_kernel_that_panics_says_where() {
    let program = programs::text(programs::path("out_of_memory"));
    let options = ["-m", "64M", "-c", "2", "--sysctl", "vm.panic_on_oom=1"];
    let outcome = ebb::run(60, &options, &[program]);
    let log = outcome.expect(125).err();
    for part in [
        "the guest kernel panicked",
        "out of memory",
        "panic_on_oom",
        "  at 0xffffffff8",
    ] {
        assert!(log.contains(part), "no {part:?} in\n{log}");
    }
}

#[test]
fn a_kernel_that_is_told_to_crash_does() {
    let script = "echo before; echo c > /proc/sysrq-trigger; echo after";
    let outcome = ebb::run(60, &["-m", "64M", "-c", "2"], &["sh", "-c", script]);
    let log = outcome.expect(125).err();
    assert_eq!(outcome.out(), "before\n");
    assert!(log.contains("the guest kernel panicked"), "{log}");
}
