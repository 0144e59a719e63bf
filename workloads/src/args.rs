//! Reads arguments that several experiments share.

use crate::Failure;
use std::time::Duration;

/// The longest accepted time in seconds: a day.
const MAX_SECONDS: f64 = 86_400.0;
/// The largest accepted number of rounds. Work with a time limit also ends after this number.
pub(crate) const MAX_ROUNDS: u64 = 1_000_000;

/// The condition under which repeated work ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Until {
    /// After the first round that ends later than this time.
    Elapsed(Duration),
    /// After this number of rounds: the same work each time, for `--icount`.
    Rounds(u64),
}

impl Until {
    /// Reads `5` or `0.5` (seconds) or `10r` (rounds). Fails with `Usage` for other texts, for 0,
    /// for more than a day, and for more than [`MAX_ROUNDS`] rounds.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let parsed = match text.strip_suffix('r') {
            Some(rounds) => whole(rounds)
                .filter(|r| (1..=MAX_ROUNDS).contains(r))
                .map(Self::Rounds),
            None => duration(text)
                .ok()
                .filter(|time| !time.is_zero())
                .map(Self::Elapsed),
        };
        parsed.ok_or_else(|| {
            Failure::Usage(format!("{text:?} is neither seconds (5) nor rounds (10r)"))
        })
    }

    /// Returns whether work that has taken `rounds` rounds and `ns` nanoseconds may end. Always
    /// `true` from [`MAX_ROUNDS`] rounds on.
    pub(crate) fn reached(self, rounds: u64, ns: u64) -> bool {
        rounds >= MAX_ROUNDS
            || match self {
                Self::Rounds(limit) => rounds >= limit,
                Self::Elapsed(limit) => u128::from(ns) >= limit.as_nanos(),
            }
    }
}

/// Removes every occurrence of the option `name` from `words`. Returns whether there was one.
pub(crate) fn take_flag(words: &mut Vec<String>, name: &str) -> bool {
    let before = words.len();
    words.retain(|word| word != name);
    words.len() != before
}

/// Checks that no word of `words` begins with `-` and that there are at most `limit` words. Fails
/// with `Usage` otherwise.
pub(crate) fn no_more(words: &[String], limit: usize) -> Result<(), Failure> {
    if let Some(option) = words.iter().find(|word| word.starts_with('-')) {
        return Err(Failure::Usage(format!("unknown option {option:?}")));
    }
    if words.len() > limit {
        let expected = match limit {
            0 => "none".to_owned(),
            limit => format!("at most {limit}"),
        };
        return Err(Failure::Usage(format!(
            "{} arguments, {expected} expected",
            words.len()
        )));
    }
    Ok(())
}

/// Reads a whole number from `least` to `most`, in decimal digits only. Fails with `Usage` for
/// other texts and outside these limits. `what` is the plural of the counted thing, for the
/// message.
pub(crate) fn number(text: &str, what: &str, least: u64, most: u64) -> Result<u64, Failure> {
    whole(text)
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| {
            Failure::Usage(format!(
                "{text:?} is not a number of {what} from {least} to {most}"
            ))
        })
}

/// Reads a time in seconds, such as `5`, `0.5` or `0`. Fails with `Usage` for texts with other
/// characters than digits and a point, and above a day.
pub(crate) fn duration(text: &str) -> Result<Duration, Failure> {
    let digits = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    match text.parse::<f64>() {
        Ok(value) if digits && (0.0..=MAX_SECONDS).contains(&value) => {
            Ok(Duration::from_secs_f64(value))
        }
        _ => Err(Failure::Usage(format!(
            "{text:?} is not a number of seconds up to {MAX_SECONDS}"
        ))),
    }
}

/// Reads a number of digits only, since `str::parse` also accepts a plus sign. Returns `None` for
/// other texts.
fn whole(text: &str) -> Option<u64> {
    text.chars()
        .all(|c| c.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_run_is_given_in_seconds_or_rounds() {
        let seconds = |s| Until::Elapsed(Duration::from_secs_f64(s));
        assert_eq!(Until::parse("5").expect("seconds"), seconds(5.0));
        assert_eq!(Until::parse("0.5").expect("seconds"), seconds(0.5));
        assert_eq!(Until::parse("10r").expect("rounds"), Until::Rounds(10));
        for text in [
            "",
            "r",
            "0",
            "0r",
            "-1",
            "+1",
            "10s",
            "nan",
            "1e3",
            "99999999r",
        ] {
            let error = Until::parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn a_run_ends_when_its_limit_is_reached() {
        assert!(Until::Rounds(2).reached(2, 0));
        assert!(!Until::Rounds(2).reached(1, u64::MAX));
        let second = Until::Elapsed(Duration::from_secs(1));
        assert!(second.reached(1, 1_000_000_000));
        assert!(!second.reached(1, 999_999_999));
        assert!(second.reached(MAX_ROUNDS, 0));
    }

    #[test]
    fn flags_are_taken_and_the_rest_is_counted() {
        let mut words = vec!["4k".to_owned(), "--threads".to_owned(), "2".to_owned()];
        assert!(take_flag(&mut words, "--threads"));
        assert!(!take_flag(&mut words, "--threads"));
        assert_eq!(words, ["4k", "2"]);
        assert!(no_more(&words, 2).is_ok());
        assert!(no_more(&words, 1).is_err());
        assert!(no_more(&["--what".to_owned()], 2).is_err());
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(number("7", "tasks", 1, 8).expect("in bounds"), 7);
        for text in ["0", "9", "", "+3", "x"] {
            assert!(number(text, "tasks", 1, 8).is_err(), "{text:?}");
        }
    }
}
