//! A byte through a pipe or a socket costs the same, counted in instructions, whatever the guest's
//! memory went through before: however many pages are held, and with files packed.

use crate::scratch::Scratch;
use crate::{ebb, programs};

/// How far above the mean the worst level may be.
const SPREAD: f64 = 1.05;

/// For each kind of line of the program's: its name, the mean and the worst, in instructions.
fn costs(options: &[&str]) -> Vec<(String, f64, f64)> {
    let mut options = options.to_vec();
    options.push("--icount");
    let program = programs::text(programs::path("bytes"));
    let outcome = ebb::run(300, &options, &[program]);
    let out = outcome.expect(0).out();
    let line = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let number = |word: &str| word.parse().expect("a number");
        (words[0].to_owned(), number(words[1]), number(words[2]))
    };
    out.lines().map(line).collect()
}

#[test]
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
