//! The arguments of the experiments' program.

use super::shape::Shape;

/// The argument for the seconds for which a rate is measured in a guest that runs alone.
pub(super) const RATE_SECONDS: &str = "2";
/// The seconds for which a rate is measured in one turn. The speed of a shared machine is constant
/// for not much longer.
const TURN_SECONDS: &str = "0.3";
/// The rounds of page faults in a turn. The suffix lets the program split them over several turns.
const TURN_ROUNDS: &str = "2r";
/// The argument for the rounds of a rate if instructions are counted, so that the work is the same
/// each time.
pub(super) const RATE_ROUNDS: &str = "10r";

/// Returns `words` as owned arguments.
pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// Returns `percent` of the guest's memory as an argument in MiB, rounded down, such as `716M`.
pub(super) fn share(shape: &Shape, percent: u64) -> String {
    format!("{}M", (shape.memory.bytes() >> 20) * percent / 100)
}

/// Returns the argument for how long a rate is measured in one turn: seconds, or rounds if
/// instructions are counted.
pub(super) fn rate(shape: &Shape) -> &'static str {
    if shape.icount {
        RATE_ROUNDS
    } else {
        TURN_SECONDS
    }
}

/// Returns the argument for how long a rate over 1 GiB is measured in one turn. It is one round if
/// instructions are counted, which is 262,144 pages.
pub(super) fn gib(shape: &Shape) -> &'static str {
    if shape.icount { "1r" } else { TURN_SECONDS }
}

/// Returns the arguments for page faults of the kind `kind`, by a task on each CPU. `kind` is a
/// word that the experiments' program knows.
pub(super) fn page_fault(kind: &str, shape: &Shape) -> Vec<String> {
    let rounds = if shape.icount {
        RATE_ROUNDS
    } else {
        TURN_ROUNDS
    };
    words(["page-fault", kind, &shape.cpus.to_string(), rounds])
}

/// Returns the arguments for `experiment`, a word of the experiments' program, with the argument
/// `size` in fragmented memory.
///
/// The program first fragments 92 % of memory and waits `seconds`, so that most huge pages need
/// compaction. With 95 %, Linux's OOM killer ends the program.
pub(super) fn fragmented(seconds: &str, [experiment, size]: [&str; 2]) -> Vec<String> {
    words(["fragment", "92%", seconds, "--", experiment, size])
}

/// Returns the MiB of 2 MiB pages that fit into a guest, with a ninth of its memory left free.
fn for_a_pool(shape: &Shape) -> u64 {
    (shape.memory.bytes() >> 20) / 9 * 8
}

/// Returns the arguments for a pool of `pages` pages of 2 MiB. In a small guest the pool is
/// smaller: half of eight ninths of the memory.
pub(super) fn pool(shape: &Shape, pages: u64) -> Vec<String> {
    let pages = pages.min(for_a_pool(shape) / 2);
    words(["hugetlb", &pages.to_string()])
}

/// Returns the arguments `of_a_pool` for a pool whose pages are timed one by one.
pub(super) fn each(mut of_a_pool: Vec<String>) -> Vec<String> {
    of_a_pool.push("--each".to_owned());
    of_a_pool
}

/// Returns the arguments for a pool of `mebibytes` MiB of huge pages that is used and then left
/// idle. In a small guest the pool is smaller: eight ninths of the memory.
pub(super) fn idle_pool(shape: &Shape, mebibytes: u64) -> Vec<String> {
    let size = format!("{}M", mebibytes.min(for_a_pool(shape)));
    let (hold, stay) = hold_and_stay(shape);
    words(["memhog", &size, hold, stay, "--hugetlb"])
}

/// Returns the arguments for a program that touches 70 % of memory, holds it, frees it and then
/// continues for some seconds.
pub(super) fn memhog(shape: &Shape) -> Vec<String> {
    let (hold, stay) = hold_and_stay(shape);
    words(["memhog", &share(shape, 70), hold, stay])
}

/// Returns the seconds for which memory is held, and for which the program continues after freeing
/// it.
fn hold_and_stay(shape: &Shape) -> (&'static str, &'static str) {
    // Without reporting no memory goes back, however long the program continues. If instructions
    // are counted, sleeping takes no time.
    match (shape.icount, shape.give_back) {
        (true, _) => ("0", "0"),
        (false, mode) if mode.is_slow() => ("1", "20"),
        (false, mode) if mode.gives_back() => ("1", "8"),
        (false, _) => ("1", "3"),
    }
}
