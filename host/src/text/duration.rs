//! Durations as users write them: `30`, `0.5`, `500ms`, `2s`, `5m`, `1h`.

use fundu::{DurationParser, TimeUnit};
use std::time::Duration;

/// The longest duration that is accepted: 365 days.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

static PARSER: DurationParser<'static> = DurationParser::builder()
    .time_units(&[
        TimeUnit::MilliSecond,
        TimeUnit::Second,
        TimeUnit::Minute,
        TimeUnit::Hour,
        TimeUnit::Day,
    ])
    .disable_exponent()
    .disable_infinity()
    .build();

/// Parses a duration such as `30`, `0.5`, `500ms` or `2h`, with the units ms, s, m, h and d. Rounds
/// down to a millisecond. A number without a unit counts seconds. Fails with a message for the user
/// if `text` is malformed, rounds to zero, or exceeds 365 days.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    if is_negative(text) {
        return Err(format!("`{text}` is less than no time; the least is 1ms"));
    }
    let parsed = PARSER.parse(text).ok();
    let parsed = parsed.and_then(|parsed| Duration::try_from(parsed).ok());
    let parsed = parsed.ok_or_else(|| {
        format!("`{text}` is no length of time; write it like 30, 0.5, 500ms or 5m")
    })?;
    if parsed > LONGEST {
        return Err(format!(
            "`{text}` is more than the 365 days that can be asked for"
        ));
    }
    let milliseconds = parsed.as_secs() * 1000 + u64::from(parsed.subsec_millis());
    if milliseconds == 0 {
        return Err(format!("`{text}` is no time at all; the least is 1ms"));
    }
    Ok(Duration::from_millis(milliseconds))
}

/// Returns whether `text` begins like a negative number.
fn is_negative(text: &str) -> bool {
    let number = text.strip_prefix('-');
    number.is_some_and(|number| {
        number.starts_with(|first: char| first.is_ascii_digit() || first == '.')
    })
}

/// Returns `duration` in whole milliseconds as text that [`parse_duration`] reads, such as `500ms`.
pub(crate) fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// Returns `duration` in seconds as text with the unit, such as `0.5 s`, without rounding to a
/// number of decimals.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_exactly() {
        for (text, milliseconds) in [
            ("5", 5000),
            ("0.5", 500),
            (".5", 500),
            ("1.0000001", 1000),
            ("1.", 1000),
            ("500ms", 500),
            ("2s", 2000),
            ("1.25s", 1250),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("365d", 31_536_000_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(milliseconds))
            );
        }
        for duration in [Duration::from_millis(1), LONGEST] {
            assert_eq!(parse_duration(&milliseconds(duration)), Ok(duration));
        }
        assert_eq!(seconds(Duration::from_millis(500)), "0.5 s");
        assert_eq!(seconds(Duration::from_secs(300)), "300 s");
    }

    #[test]
    fn others_are_refused_by_their_words() {
        for text in [
            "",
            "s",
            "-1",
            "1e3",
            "5 m",
            "5M",
            "0x5",
            "inf",
            "1..2",
            "0",
            "0.0001",
            "366d",
            "18446744073709551615h",
            "307445734561825860.9m",
            "99999999999999999999",
            "１",
        ] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
        for text in ["-1", "-.5", "-500ms"] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains("less than no time"), "{error}");
        }
        for text in ["-", "--summary", "-x"] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains("no length of time"), "{error}");
        }
    }
}
