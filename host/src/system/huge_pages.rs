//! Transparent huge pages of the host.

use std::fs;

const SHARED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Disables transparent huge pages for this process and its later children, for a guest whose
/// memory is in base pages. Otherwise the translator's buffer, the memory of QEMU's board and any
/// heap could be in huge pages, and hold memory that is not used. An error is ignored.
pub(crate) fn do_without() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Returns whether the host may use transparent huge pages for shared memory: the setting
/// `shmem_enabled` is neither `never` nor `deny`. Returns `false` if the setting cannot be read.
pub(crate) fn are_for_shared_memory() -> bool {
    fs::read_to_string(SHARED).is_ok_and(|text| gives(&text))
}

/// Returns whether `text`, the content of the setting's file, enables huge pages. The current value
/// is in brackets.
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
