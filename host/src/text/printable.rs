//! Makes text of other programs safe to show on a terminal.

/// Returns whether a terminal may treat `c` as a command, or reorder text because of it. That is so
/// for a control character (C0, C1 or DEL, also tab and newline), one of Unicode's controls of
/// direction, or a line separator.
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns `line` without characters that could control the user's terminal. Escape sequences and
/// carriage returns at the end are removed. Other characters for which [`steers`] returns `true`,
/// also newlines, are written as `\u{…}`. Tabs stay.
pub(crate) fn printable(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line.trim_end_matches('\r').chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' if rest.peek() == Some(&'[') => {
                // Parameters and intermediate bytes end at the final byte, as in ECMA-48.
                rest.by_ref().skip(1).find(|c| ('@'..='~').contains(c));
            }
            '\x1b' => {
                rest.next();
            }
            '\t' => text.push(c),
            c if steers(c) => text.extend(c.escape_unicode()),
            c => text.push(c),
        }
    }
    text
}

/// Returns `text` with [`printable`] applied to each line, so without control characters except
/// tabs and newlines.
pub(crate) fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// Returns `value` as JSON, on several lines if `pretty`, without a newline at the end. Characters
/// for which [`steers`] returns `true` are written as `\u` escapes, which does not change the
/// value.
///
/// # Errors
/// If `value` cannot be serialised.
pub(crate) fn printable_json(
    value: &(impl serde::Serialize + ?Sized),
    pretty: bool,
) -> serde_json::Result<String> {
    let json = if pretty {
        serde_json::to_string_pretty(value)?
    } else {
        serde_json::to_string(value)?
    };
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) && c != '\n' {
            // All of these characters are below U+10000.
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    Ok(text)
}

/// Tests, and a hostile text with a check that other tests use.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A name that sets a terminal's title, clears its screen and reverses text.
    pub(crate) const HOSTILE: &str = "a\x1b]0;title\x07\x1b[2J\u{9b}2J\u{202e}\r\u{7f}z";

    /// Asserts that a text has no character that could control a terminal, except newlines.
    pub(crate) fn assert_harmless(text: &str) {
        let found: Vec<_> = text.chars().filter(|c| steers(*c) && *c != '\n').collect();
        assert!(found.is_empty(), "{found:?} in {text:?}");
    }

    #[test]
    fn control_characters_do_nothing() {
        assert_eq!(printable("\x1bc\x1b[?7l\x1b[2Ja\tb\x07\r"), "a\tb\\u{7}");
        assert_eq!(printable("\x1b"), "");
        assert_eq!(printable("\x1b[12;"), "");
        assert_eq!(printable("x\u{9b}2J"), "x\\u{9b}2J");
        assert_eq!(printable("a\r\nb\u{7f}"), "a\\u{d}\\u{a}b\\u{7f}");
        assert_harmless(&printable(HOSTILE));
    }

    #[test]
    fn text_stays_in_its_order() {
        for c in [
            '\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{202a}', '\u{202e}', '\u{2066}',
            '\u{2069}',
        ] {
            assert_eq!(
                printable(&format!("a{c}b")),
                format!("a{}b", c.escape_unicode())
            );
        }
        assert_eq!(printable("שלום ß → 漢 👍🏽"), "שלום ß → 漢 👍🏽");
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(printable_lines("a\x1b[\nb\x1b\nc\n"), "a\nb\nc\n");
    }

    #[test]
    fn json_means_the_same() {
        let json = printable_json(HOSTILE, false).unwrap();
        assert_harmless(&json);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), HOSTILE);
    }
}
