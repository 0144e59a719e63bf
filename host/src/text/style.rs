//! What the user's terminal can show.

use std::env;

/// How pictures in text are drawn here.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Style {
    /// The terminal shows block elements.
    pub(crate) unicode: bool,
}

impl Style {
    /// What the locale allows.
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
