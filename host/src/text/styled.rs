//! Text with colours of ebb's own.

use super::printable::printable_lines;
use std::fmt;

/// Text with styles for a terminal. Every text that is added is made printable, so all escape
/// sequences in it are ebb's own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Styled(String);

impl Styled {
    /// Adds `text` without a style. Control characters in it are made printable; newlines stay.
    pub(crate) fn push(&mut self, text: &str) {
        self.0.push_str(&printable_lines(text));
    }

    /// Adds `text` in the style with the number `code`, a parameter of ECMA-48's SGR sequence, and
    /// then resets the style. Control characters in `text` are made printable; newlines stay.
    pub(crate) fn paint(&mut self, code: u8, text: &str) {
        self.0.push_str(&format!("\x1b[{code}m"));
        self.push(text);
        self.0.push_str("\x1b[0m");
    }

    /// Adds another styled text unchanged.
    pub(crate) fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// Removes white space, also newlines, at the end. Stops at an escape sequence.
    pub(crate) fn trim_end(&mut self) {
        self.0.truncate(self.0.trim_end().len());
    }

    /// Returns whether nothing has been added.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text with its escape sequences, for the terminal.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Write for Styled {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::printable::tests::{HOSTILE, assert_harmless};
    use super::*;
    use std::fmt::Write;

    #[test]
    fn only_styles_of_its_own_are_in_it() {
        let mut text = Styled::default();
        let _ = write!(text, "{HOSTILE}\n{HOSTILE}");
        text.paint(31, HOSTILE);
        let painted = text.as_str();
        assert!(painted.contains("\x1b[31m") && painted.ends_with("\x1b[0m"));
        assert_harmless(&painted.replace("\x1b[31m", "").replace("\x1b[0m", ""));
    }
}
