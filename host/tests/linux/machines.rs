//! Tests of numbers of CPUs, machine types and instruction counting.

use crate::{ebb, programs};

#[test]
fn one_to_sixteen_cpus_on_both_machines() {
    for machine in ["microvm", "q35"] {
        for cpus in [1, 2, 3, 5, 8, 16] {
            let count = cpus.to_string();
            let outcome = ebb::run(
                300,
                &["-m", "256M", "-c", &count, "--machine", machine],
                &[
                    "sh",
                    "-c",
                    "nproc; grep -c ^processor /proc/cpuinfo; exit 5",
                ],
            );
            assert_eq!(
                outcome.expect(5).out(),
                format!("{cpus}\n{cpus}\n"),
                "{machine}"
            );
        }
    }
}

#[test]
#[ignore = "long: make test-long"]
fn many_starts_in_a_row_end_as_they_should() {
    for start in 0..24 {
        let cpus = (start % 8 + 1).to_string();
        let script = format!("for i in 1 2 3; do echo {start} $i; done | cat; exit {start}");
        let outcome = ebb::run(300, &["-m", "64M", "-c", &cpus], &["sh", "-c", &script]);
        assert_eq!(
            outcome.expect(start).out(),
            format!("{start} 1\n{start} 2\n{start} 3\n")
        );
    }
}

/// Shows that with instructions as the clock, the same work takes the same time to the nanosecond.
#[test]
fn counted_time_is_the_same_twice() {
    let run = || {
        let program = programs::text(programs::path("ticks"));
        let outcome = ebb::run(300, &["-m", "128M", "-c", "1", "--icount"], &[program]);
        outcome.expect(0).out()
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    assert!(first.contains("ns"), "{first}");
}
