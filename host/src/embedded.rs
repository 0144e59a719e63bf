//! The programs of guests that the binary holds.

use std::sync::OnceLock;

/// Static programs. One that the build has skipped is empty.
#[derive(Copy, Clone, Debug)]
pub struct Embedded {
    /// The guest kernel, an ELF file.
    pub kernel: &'static [u8],
    /// `ebb-workloads`.
    pub experiments: &'static [u8],
    /// `ebb-init`, the first process of stock guests.
    pub init: &'static [u8],
}

static EMBEDDED: OnceLock<Embedded> = OnceLock::new();

/// Keeps them for the rest of the process.
pub(crate) fn set(embedded: Embedded) {
    EMBEDDED.get_or_init(|| embedded);
}

/// Returns those of this process; empty ones in a process that has set none, such as that of a unit test.
pub(crate) fn get() -> Embedded {
    let none = Embedded {
        kernel: &[],
        experiments: &[],
        init: &[],
    };
    EMBEDDED.get().copied().unwrap_or(none)
}
