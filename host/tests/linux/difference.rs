//! Shows where two outputs differ.

/// The largest number of lines of a difference that are shown.
const SHOWN: usize = 40;
/// The number of lines that are shown before the first difference.
const CONTEXT: usize = 3;

/// Returns the first lines that differ, with `-` for expected and `+` for found lines. Returns
/// `None` if both outputs are equal.
pub(crate) fn between(expected: &[u8], found: &[u8]) -> Option<String> {
    if expected == found {
        return None;
    }
    let (expected, found) = (
        String::from_utf8_lossy(expected),
        String::from_utf8_lossy(found),
    );
    let mut before: Vec<&str> = expected.lines().collect();
    let mut after: Vec<&str> = found.lines().collect();
    let same = before
        .iter()
        .zip(&after)
        .take_while(|(a, b)| a == b)
        .count();
    let context: Vec<&str> = before[same.saturating_sub(CONTEXT)..same].to_vec();
    before.drain(..same);
    after.drain(..same);
    while before.last().is_some() && before.last() == after.last() {
        before.pop();
        after.pop();
    }
    let mut text = String::new();
    for line in context {
        text.push_str(&format!("  {line}\n"));
    }
    for line in merge(&before, &after).into_iter().take(SHOWN) {
        text.push_str(&line);
        text.push('\n');
    }
    if before.is_empty() && after.is_empty() {
        text.push_str("  (they differ in how lines end)\n");
    }
    Some(text)
}

/// A plain difference by lines, which continues correctly after inserted or missing lines.
fn merge(before: &[&str], after: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut i, mut k) = (0, 0);
    while i < before.len() || k < after.len() {
        match (before.get(i), after.get(k)) {
            (Some(a), Some(b)) if a == b => (i, k) = (i + 1, k + 1),
            (Some(a), Some(b)) => {
                if after[k..].iter().take(SHOWN).any(|line| line == a) {
                    lines.push(format!("+ {b}"));
                    k += 1;
                } else {
                    lines.push(format!("- {a}"));
                    i += 1;
                    if !before[i..].iter().take(SHOWN).any(|line| line == b) {
                        lines.push(format!("+ {b}"));
                        k += 1;
                    }
                }
            }
            (Some(a), None) => {
                lines.push(format!("- {a}"));
                i += 1;
            }
            (None, Some(b)) => {
                lines.push(format!("+ {b}"));
                k += 1;
            }
            (None, None) => unreachable!("the loop's condition"),
        }
    }
    lines
}

#[test]
fn a_difference_shows_what_changed_and_no_more() {
    assert_eq!(between(b"a\nb\n", b"a\nb\n"), None);
    let text = between(b"a\nb\nc\nd\n", b"a\nb\nX\nd\n").expect("they differ");
    assert_eq!(text, "  a\n  b\n- c\n+ X\n");
    let text = between(b"a\nc\n", b"a\nb\nc\n").expect("they differ");
    assert_eq!(text, "  a\n+ b\n");
}
