//! The abilities of the user's terminal.

use std::env;

/// The style of pictures that are made of characters: with Unicode or only with ASCII.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Style {
    /// Whether the terminal shows Unicode's block elements.
    pub(crate) unicode: bool,
}

impl Style {
    /// Returns the style that the locale allows: Unicode if the first non-empty one of `LC_ALL`,
    /// `LC_CTYPE` and `LANG` names UTF-8, else ASCII.
    pub(crate) fn from_environment() -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
            .unwrap_or_default()
            .to_ascii_lowercase();
        Self {
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }
}
