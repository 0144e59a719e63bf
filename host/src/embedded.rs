//! The programs for guests that the binary holds.

use std::sync::OnceLock;

/// The programs for guests that are embedded in the binary. All are static. A program that the
/// build skipped is empty.
#[derive(Copy, Clone, Debug)]
pub struct Embedded {
    /// The guest kernel, an ELF file.
    pub kernel: &'static [u8],
    /// The experiments: the program `ebb-workloads`.
    pub experiments: &'static [u8],
    /// The first process of stock guests: the program `ebb-init`.
    pub init: &'static [u8],
    /// The commit from which the binary was built, shortened. Empty if the build did not know it.
    pub commit: &'static str,
}

static EMBEDDED: OnceLock<Embedded> = OnceLock::new();

/// Stores the embedded programs for the rest of the process. Only the first call has an effect;
/// later ones are ignored.
pub(crate) fn set(embedded: Embedded) {
    EMBEDDED.get_or_init(|| embedded);
}

/// Returns the embedded programs of this process. All are empty if [`set`] was not called, as in
/// unit tests.
pub(crate) fn get() -> Embedded {
    let none = Embedded {
        kernel: &[],
        experiments: &[],
        init: &[],
        commit: "",
    };
    EMBEDDED.get().copied().unwrap_or(none)
}

/// Returns the version of `ebb` for users, with the commit from which it was built if that is
/// known.
pub(crate) fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| match get().commit {
        "" => env!("CARGO_PKG_VERSION").to_owned(),
        commit => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
    })
}
