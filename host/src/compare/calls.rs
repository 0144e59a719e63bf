//! The words that the program of an experiment is called with.

use super::shape::Shape;

/// Seconds that a rate is measured for in a guest that runs alone.
pub(super) const RATE_SECONDS: &str = "2";
/// Seconds that a rate is measured for in one turn. A machine that is shared keeps its speed for
/// not much longer.
const TURN_SECONDS: &str = "0.3";
/// Rounds of page faults in one round; they are cut into pieces with a turn for each.
const TURN_ROUNDS: &str = "2r";
/// Rounds of a rate where instructions are counted: the same work each time.
pub(super) const RATE_ROUNDS: &str = "10r";

/// Words of a call.
pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// A share of the guest's memory, in whole MiB, as the program reads it.
pub(super) fn share(shape: &Shape, percent: u64) -> String {
    format!("{}M", (shape.memory.bytes() >> 20) * percent / 100)
}

/// For how long, or how many rounds, a rate is measured.
pub(super) fn rate(shape: &Shape) -> &'static str {
    if shape.icount {
        RATE_ROUNDS
    } else {
        TURN_SECONDS
    }
}

/// Page faults of a kind, by a task on each CPU.
pub(super) fn page_fault(kind: &str, shape: &Shape) -> Vec<String> {
    let rounds = if shape.icount {
        RATE_ROUNDS
    } else {
        TURN_ROUNDS
    };
    words(["page-fault", kind, &shape.cpus.to_string(), rounds])
}

/// An experiment in memory that another one has fragmented: nearly all that is free, so that most huge
/// pages must be made by compaction. Of 95 % Linux's OOM killer ends it.
pub(super) fn fragmented(seconds: &str, [experiment, size]: [&str; 2]) -> Vec<String> {
    words(["fragment", "92%", seconds, "--", experiment, size])
}

/// Mebibytes of pages of 2 MiB that fit into a guest and leave a ninth of it to the rest.
fn for_a_pool(shape: &Shape) -> u64 {
    (shape.memory.bytes() >> 20) / 9 * 8
}

/// So many huge pages, or what fits into a smaller guest that the user wants.
pub(super) fn pool(shape: &Shape, pages: u64) -> Vec<String> {
    let pages = pages.min(for_a_pool(shape) / 2);
    words(["hugetlb", &pages.to_string()])
}

/// A pool of so many mebibytes, or of what fits, that is used and left alone.
pub(super) fn idle_pool(shape: &Shape, mebibytes: u64) -> Vec<String> {
    let size = format!("{}M", mebibytes.min(for_a_pool(shape)));
    let (hold, stay) = hold_and_stay(shape);
    words(["memhog", &size, hold, stay, "--hugetlb"])
}

/// Most of memory is touched and freed.
pub(super) fn memhog(shape: &Shape) -> Vec<String> {
    let (hold, stay) = hold_and_stay(shape);
    words(["memhog", &share(shape, 70), hold, stay])
}

/// Seconds for which memory is held, and for which the program stays when it has freed it.
fn hold_and_stay(shape: &Shape) -> (&'static str, &'static str) {
    // What is not reported does not come back, however long one waits. Sleep takes no time where
    // instructions are counted.
    match (shape.icount, shape.give_back) {
        (true, _) => ("0", "0"),
        (false, way) if way.is_slow() => ("1", "20"),
        (false, way) if way.gives_back() => ("1", "8"),
        (false, _) => ("1", "3"),
    }
}
