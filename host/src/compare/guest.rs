//! The guest kernels of a comparison.

use serde::{Deserialize, Serialize};

/// The kernel that a program runs on.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Guest {
    /// Ebb's own kernel.
    Ebb,
    /// A stock Linux kernel.
    Linux,
}

impl Guest {
    /// Returns the kernel's name for users: `Ebb` or `Linux`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ebb => "Ebb",
            Self::Linux => "Linux",
        }
    }
}
