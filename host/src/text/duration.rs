//! Durations as users write them: `30`, `0.5`, `500ms`, `2s`, `5m`, `1h`.

use std::time::Duration;

/// The longest duration that is accepted: 365 days.
const LONGEST: Duration = Duration::from_secs(31_536_000);

/// The units and their milliseconds. `ms` ends with the letter of another unit, so it comes first.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Parses a duration such as `30`, `0.5`, `500ms` or `2h`, with the units ms, s, m, h and d. Rounds
/// down to a millisecond. A number without a unit counts seconds. Fails with a message for the user
/// if `text` is malformed, has more than six decimals, rounds to zero, or exceeds 365 days.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let malformed = || format!("`{text}` is no length of time; write it like 30, 0.5, 500ms or 5m");
    let unit = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (number, unit) = unit.unwrap_or((text, 1000));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 6 {
        return Err(malformed());
    }
    let too_long = || format!("`{text}` is more than the 365 days that can be asked for");
    let whole: u64 = whole.parse().map_err(|_| too_long())?;
    let scale = fraction.bytes().fold(1u64, |scale, _| scale * 10);
    let fraction: u64 = match fraction {
        "" => 0,
        digits => digits.parse().map_err(|_| malformed())?,
    };
    // fraction < 10^6 and unit < 10^8: the product is far below 2^64.
    let part = fraction * unit / scale;
    let milliseconds = whole.checked_mul(unit);
    let milliseconds = milliseconds.and_then(|milliseconds| milliseconds.checked_add(part));
    let milliseconds = milliseconds.ok_or_else(too_long)?;
    match Duration::from_millis(milliseconds) {
        Duration::ZERO => Err(format!("`{text}` is no time at all; the least is 1ms")),
        long if long > LONGEST => Err(too_long()),
        duration => Ok(duration),
    }
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
        assert_eq!(seconds(Duration::from_millis(500)), "0.5 s");
        assert_eq!(seconds(Duration::from_secs(300)), "300 s");
    }

    #[test]
    fn others_are_refused_by_their_words() {
        for text in [
            "",
            "s",
            ".5",
            "-1",
            "1e3",
            "5 m",
            "5M",
            "0x5",
            "1.0000001",
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
    }
}
