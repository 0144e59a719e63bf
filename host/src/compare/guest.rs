//! The guests of a comparison.

use serde::{Deserialize, Serialize};

/// Which kernel a program runs on.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Guest {
    /// The kernel in this binary.
    Ebb,
    /// A stock Linux kernel.
    Linux,
}

impl Guest {
    /// Its name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ebb => "Ebb",
            Self::Linux => "Linux",
        }
    }
}
