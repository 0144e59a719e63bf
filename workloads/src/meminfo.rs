//! What the guest itself says about its memory.

/// A field of `/proc/meminfo` in KiB, where there is such a file and field.
pub(crate) fn kib(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    field(&text, name)
}

/// The value of `name` in text of lines `Name:   123 kB`.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotal:  466284 kB\nMemFreeX: 1 kB\nMemFree:     436996 kB\n";
        assert_eq!(field(text, "MemFree"), Some(436_996));
        assert_eq!(field(text, "Mem"), None);
        assert_eq!(field("MemFree: lots", "MemFree"), None);
    }
}
