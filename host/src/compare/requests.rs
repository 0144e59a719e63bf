//! The requests by which a guest reported free memory while its program measured.
//!
//! Ebb's guests count their requests, and programs print the count as the result `reports`. On
//! stock Linux programs print the interrupts of the balloon, which also come from the host's
//! questions about the guest's memory. [`conclude`] computes bounds from them.

use super::figure::{Figure, lower};
use super::give_back_mode::GiveBackMode;
use super::schema::Run;

/// The metric of the requests by which a guest reported memory.
pub(super) const REPORTS: &str = "reports";
/// The metric of a balloon's interrupts, which is not shown.
const INTERRUPTS: &str = "balloon_interrupts";
/// The metric of the seconds in which these came.
const WATCHED: &str = "watched_s";

/// The host's questions about a stock guest's memory, per second of the guest's clock, if
/// instructions are counted. QEMU asks a second after the guest has answered.
const QUESTIONS_COUNTED: f64 = 1.0;
/// The longest time from one of these to the next, in seconds. Only a guest that answers late
/// takes longer than a second.
const QUESTION_SECONDS_MAX: f64 = 1.25;
/// The most questions per second otherwise. `ebb run` asks at most every 250 ms.
const QUESTIONS_TIMED: f64 = 4.0;

/// Replaces the interrupts of a balloon in `figures` by the figure `reports`, with the same labels.
/// It is the least number of requests that the interrupts prove, or 0 if there was none. Adds
/// nothing where there may have been one, or where the host inflates the balloon.
pub(super) fn conclude(run: &Run, figures: &mut Vec<Figure>) {
    let mut take = |metric: &str| -> Vec<Figure> {
        let is_it = |figure: &mut Figure| figure.metric == metric;
        figures.extract_if(.., is_it).collect()
    };
    let (interrupts, watched) = (take(INTERRUPTS), take(WATCHED));
    // A balloon that the host changes interrupts for that, too.
    if run.give_back == GiveBackMode::Balloon {
        return;
    }
    // A program prints the two one after the other.
    for (interrupts, watched) in interrupts.into_iter().zip(watched) {
        if let Some(value) = requests(interrupts.value, watched.value, run.icount) {
            figures.push(Figure {
                labels: interrupts.labels,
                comparable: false,
                ..lower(REPORTS, "requests", value)
            });
        }
    }
}

/// Returns the least number of requests among `interrupts` interrupts in `seconds` seconds, or
/// 0 if all of them were answers to questions. Returns `None` if that is not certain.
fn requests(interrupts: f64, seconds: f64, icount: bool) -> Option<f64> {
    let (rate, questions_min) = if icount {
        let questions_min = (seconds / QUESTION_SECONDS_MAX).floor();
        (QUESTIONS_COUNTED, questions_min)
    } else {
        (QUESTIONS_TIMED, 0.0)
    };
    let questions_max = (seconds * rate).floor() + 1.0;
    if interrupts > questions_max {
        Some(interrupts - questions_max)
    } else if interrupts <= questions_min {
        Some(0.0)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_prove_reports_beyond_the_questions() {
        // In 5.5 s there are four to six questions.
        for (interrupts, known) in [
            (9.0, Some(3.0)),
            (7.0, Some(1.0)),
            (6.0, None),
            (5.0, None),
            (4.0, Some(0.0)),
        ] {
            assert_eq!(requests(interrupts, 5.5, true), known, "{interrupts}");
        }
        assert_eq!(requests(0.0, 0.5, true), Some(0.0));
        assert_eq!(requests(1.0, 0.5, true), None);
        // A guest by the host's clock is asked more often, or not at all while it is stopped.
        assert_eq!(requests(30.0, 5.5, false), Some(7.0));
        assert_eq!(requests(20.0, 5.5, false), None);
        assert_eq!(requests(0.0, 5.5, false), Some(0.0));
    }
}
