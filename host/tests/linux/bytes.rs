//! Tests that a byte through a pipe or a socket always costs the same number of instructions: after
//! any earlier use of the guest's memory, with any number of held pages, and with packed files.

use crate::scratch::Scratch;
use crate::{ebb, programs};

/// The largest ratio of the highest cost to the mean cost.
const SPREAD: f64 = 1.05;

/// Returns for each kind of line in the program's output its name, the mean cost and the highest
/// cost, in instructions.
fn costs(options: &[&str]) -> Vec<(String, f64, f64)> {
    let mut options = options.to_vec();
    options.push("--icount");
    let program = programs::text(programs::path("bytes"));
    let outcome = ebb::run(900, &options, &[program]);
    let out = outcome.expect(0).out();
    let line = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let number = |word: &str| word.parse().expect("a number");
        (words[0].to_owned(), number(words[1]), number(words[2]))
    };
    out.lines().map(line).collect()
}

#[test]
#[ignore = "long: make test-long"]
fn a_byte_costs_the_same_at_every_fill_of_memory() {
    let scratch = Scratch::new("bytes");
    let file = scratch.write("packed", vec![1; 49 << 20]);
    let packed = format!("{file}:/packed");
    let alone = costs(&["-m", "512M"]);
    let beside = costs(&["-m", "512M", "--file", &packed]);
    assert_eq!(alone.len(), 2, "{alone:?}");
    for ((kind, mean, worst), (_, mean_beside, worst_beside)) in alone.iter().zip(&beside) {
        eprintln!(
            "{kind}: {mean} instructions a byte, at most {worst}; with files {mean_beside}, {worst_beside}"
        );
        let bound = mean * SPREAD;
        assert!(
            *worst <= bound && *worst_beside <= bound,
            "{kind}: mean {mean}, worst {worst}; with files packed {mean_beside}, {worst_beside}"
        );
    }
}
