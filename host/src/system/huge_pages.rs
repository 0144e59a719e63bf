//! Transparent huge pages of the host's.

use std::fs;

const SHARED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Whether the host gives them to shared memory, as a guest's is.
pub(crate) fn in_shared_memory() -> bool {
    // A host that does not say so has none.
    fs::read_to_string(SHARED).is_ok_and(|text| gives(&text))
}

/// Reads a line with the value that holds in brackets.
fn gives(text: &str) -> bool {
    !["[never]", "[deny]"]
        .iter()
        .any(|word| text.split_ascii_whitespace().any(|other| other == *word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_in_brackets_holds() {
        assert!(!gives("always within_size advise [never] deny force\n"));
        assert!(!gives("always within_size advise never [deny] force\n"));
        assert!(gives("always within_size [advise] never deny force\n"));
        assert!(gives("[always] within_size advise never deny force\n"));
    }
}
