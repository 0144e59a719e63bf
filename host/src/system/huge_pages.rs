//! Transparent huge pages of the host's.

use std::fs;

const SHARED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Has this process and those that it starts get none, for a guest whose memory is in base pages. QEMU asks
/// for some, for the translator's buffer and for every block of memory of its board, and a host may give some to any heap:
/// memory that is held for nothing. A kernel that cannot do it goes on as it did.
pub(crate) fn do_without() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Whether the host gives some to shared memory. A host that does not say so gives none.
pub(crate) fn are_for_shared_memory() -> bool {
    fs::read_to_string(SHARED).is_ok_and(|text| gives(&text))
}

/// Whether shared memory gets some, by a line with the value that holds in brackets.
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
