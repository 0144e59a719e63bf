//! Shows names of unknown origin in messages.

use super::printable::printable;
use std::ffi::OsStr;
use std::fmt;

/// The largest number of characters of a name that a message shows.
const SHOWN_MAX: usize = 256;

/// A name of unknown origin as a message shows it: on one line, without control characters, and
/// shortened in its middle if it is long. So no name can look like a message of ebb.
#[derive(Copy, Clone, Debug)]
pub(crate) struct OneLine<'a> {
    name: &'a OsStr,
    most: usize,
}

/// Wraps a path, a word or a text of unknown origin for display in a message. At most 256
/// characters of it are shown.
pub(crate) fn one_line(name: &(impl AsRef<OsStr> + ?Sized)) -> OneLine<'_> {
    OneLine {
        name: name.as_ref(),
        most: SHOWN_MAX,
    }
}

impl OneLine<'_> {
    /// Returns the same name with at most `most` shown characters instead of 256. A longer name is
    /// shown with an ellipsis in its middle, which counts as one of them.
    pub(crate) fn up_to(self, most: usize) -> Self {
        Self { most, ..self }
    }
}

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.name.to_string_lossy().replace('\n', "\\n");
        let text = printable(&text);
        let count = text.chars().count();
        if count <= self.most {
            return f.write_str(&text);
        }
        // The end of a path is more useful than its middle.
        let start = self.most / 2;
        let end = self.most.saturating_sub(start + 1);
        let characters = || text.chars();
        let shown = characters()
            .take(start)
            .chain(['…'])
            .chain(characters().skip(count - end));
        f.write_str(&shown.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::super::printable::tests::{HOSTILE, assert_harmless};
    use super::*;
    use std::path::Path;

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for name in ["/usr/bin/env", "a b", "`x`", "back\\slash", "ß→漢", ""] {
            assert_eq!(one_line(name).to_string(), name);
        }
        assert_eq!(one_line(Path::new("/a/b")).to_string(), "/a/b");
        let long = "x".repeat(SHOWN_MAX);
        assert_eq!(one_line(&long).to_string(), long);
    }

    #[test]
    fn a_name_has_one_line_and_steers_nothing() {
        let name = format!("{HOSTILE}\nebb: forged\r\n  help: forged");
        let shown = one_line(&name).to_string();
        assert_harmless(&shown);
        assert!(
            !shown.contains('\n') && shown.contains("\\nebb: "),
            "{shown}"
        );
    }

    #[test]
    fn a_long_name_keeps_its_start_and_its_end() {
        let name = format!("/start/{}/end", "漢".repeat(1 << 20));
        let shown = one_line(&name).to_string();
        assert_eq!(shown.chars().count(), SHOWN_MAX);
        assert!(shown.starts_with("/start/漢") && shown.ends_with("漢/end"));
        assert_eq!(one_line(&name).up_to(5).to_string(), "/s…nd");
    }
}
