//! The arguments of the experiments' program.

use super::shape::Shape;
use std::time::Duration;

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

/// The seconds of a program that stays after it has freed memory, if instructions are counted.
/// Within them every kernel has given back all that it will. They take the host no time.
pub(super) const COUNTED_STAY: &str = "20";
/// The rounds of page faults of each kind if instructions are counted. On Ebb, the faster kernel,
/// they take more than 2 s of the guest's clock, the time from the first free to a report.
const COUNTED_ROUNDS: [(&str, &str); 3] = [("4k", "200r"), ("thp", "500r"), ("file", "75r")];
/// The rounds of messages if instructions are counted, which take that time over each channel. On
/// Linux they take 6 s and more, in which the balloon's interrupts prove the reports.
const COUNTED_MESSAGES: &str = "1500r";
/// The rounds of messages in a turn.
const TURN_MESSAGES: &str = "50r";
/// The option with which a program first uses all free memory once, so that the guest has memory to
/// report.
pub(super) const MEMHOG: &str = "--memhog";

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
///
/// If instructions are counted, the rounds are enough for a report of free memory while they run.
pub(super) fn page_fault(kind: &str, shape: &Shape) -> Vec<String> {
    let tasks = shape.cpus.to_string();
    let counted = COUNTED_ROUNDS.iter().find(|(known, _)| *known == kind);
    match counted {
        Some((_, rounds)) if shape.icount => words(["page-fault", kind, &tasks, rounds, MEMHOG]),
        _ => words(["page-fault", kind, &tasks, TURN_ROUNDS]),
    }
}

/// Returns the arguments for four groups of tasks that send messages. If instructions are counted,
/// the messages are enough for a report of free memory while they are sent.
pub(super) fn messaging(shape: &Shape) -> Vec<String> {
    if shape.icount {
        words(["messaging", "4", COUNTED_MESSAGES, MEMHOG])
    } else {
        words(["messaging", "4", TURN_MESSAGES])
    }
}

/// The speed of a guest whose instructions are counted, on a host of 2026, for the first estimate.
const INSTRUCTIONS_PER_SECOND: f64 = 250e6;
/// The instructions that the slower kernel executes in a round of page faults of each kind.
const FAULT_ROUNDS: [(&str, f64); 3] = [("4k", 148e6), ("thp", 37e6), ("file", 183e6)];
/// The same for a round of messages over both channels.
const MESSAGE_ROUND: f64 = 12.5e6;

/// Returns the host's time for the instructions of the program with the arguments `words` in a
/// guest whose instructions are counted, as far as they are more than those of a boot. It is a
/// guess for Linux, which is slower.
pub(super) fn counted_time(words: &[String]) -> Duration {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let rounds = |at: usize| {
        let number = word(at)
            .strip_suffix('r')
            .and_then(|n| n.parse::<f64>().ok());
        number.unwrap_or(0.0)
    };
    let instructions = match word(0) {
        "page-fault" => {
            let known = FAULT_ROUNDS.iter().find(|(kind, _)| *kind == word(1));
            let a_round = known.map_or(0.0, |(_, instructions)| *instructions);
            let tasks: f64 = word(2).parse().unwrap_or(1.0);
            // In place of rounds there may be seconds of the guest's clock. The warm-up and the
            // task's file take several rounds' time.
            let seconds: f64 = word(3).parse().unwrap_or(0.0);
            a_round * (rounds(3) + 4.0 * tasks) + seconds * 1e9
        }
        "messaging" => MESSAGE_ROUND * rounds(2),
        _ => 0.0,
    };
    Duration::from_secs_f64(instructions / INSTRUCTIONS_PER_SECOND)
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
/// continues for some seconds. If instructions are counted, it does so several times, so that
/// memory is reported in between.
pub(super) fn memhog(shape: &Shape) -> Vec<String> {
    let size = share(shape, 70);
    if shape.icount {
        return words(["memhog", &size, "0", COUNTED_STAY, "4r"]);
    }
    let (hold, stay) = hold_and_stay(shape);
    words(["memhog", &size, hold, stay])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::give_back_mode::GiveBackMode;
    use crate::text::Size;

    fn shape(icount: bool) -> Shape {
        Shape {
            memory: Size::mebibytes(1024),
            cpus: 1,
            give_back: GiveBackMode::OFF,
            icount,
        }
    }

    #[test]
    fn counted_work_is_long_enough_for_a_report() {
        for (kind, rounds) in COUNTED_ROUNDS {
            let words = page_fault(kind, &shape(true));
            assert_eq!(words, ["page-fault", kind, "1", rounds, MEMHOG]);
            assert_eq!(page_fault(kind, &shape(false))[3], TURN_ROUNDS);
        }
        assert_eq!(messaging(&shape(false)), ["messaging", "4", "50r"]);
        assert_eq!(memhog(&shape(true)), ["memhog", "716M", "0", "20", "4r"]);
        assert_eq!(memhog(&shape(false)), ["memhog", "716M", "1", "3"]);
    }

    #[test]
    fn counted_time_follows_the_work() {
        let seconds = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            counted_time(&words).as_secs_f64()
        };
        let short = seconds(&["page-fault", "4k", "1", "100r"]);
        let long = seconds(&["page-fault", "4k", "1", "204r", "--memhog"]);
        assert!((long / short - 2.0).abs() < 1e-9, "{short} {long}");
        // Five seconds of the guest's clock are 5·10⁹ instructions, whatever the work.
        let clock = |seconds_of: &str| seconds(&["page-fault", "thp", "16", seconds_of]);
        assert!((clock("10") - clock("5") - 5e9 / INSTRUCTIONS_PER_SECOND).abs() < 1e-9);
        assert!(seconds(&["messaging", "4", "1500r"]) > 1.0);
        assert_eq!(seconds(&["latency"]), 0.0);
    }
}
