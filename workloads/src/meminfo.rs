//! Reads the guest's memory figures.

/// Returns the field `name` of `/proc/meminfo` in KiB. Returns `None` if the file cannot be read,
/// has no such field, or gives it without the unit kB.
pub(crate) fn kib(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    field(&text, name)
}

/// Returns the free memory of the guest in KiB: `MemFree`, and the frames in the per-CPU lists of
/// `/proc/zoneinfo`, which Linux's `MemFree` does not include. With one CPU these can be 80 MiB,
/// and they get the freed descriptor pages of huge pages. Counts no such frames if that file cannot
/// be read. Returns `None` if `MemFree` is unknown.
pub(crate) fn free_kib() -> Option<u64> {
    let zones = std::fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
    Some(kib("MemFree")? + held_by_cpus(&zones) * 4)
}

/// Returns the number of frames in the per-CPU lists, from the text of `/proc/zoneinfo`. Returns 0
/// if it lists none.
fn held_by_cpus(zones: &str) -> u64 {
    let counts = zones.lines().filter_map(|line| {
        let count = line.trim_start().strip_prefix("count:")?;
        count.trim().parse::<u64>().ok()
    });
    counts.sum()
}

/// Returns the number in the line `name:   123 kB` of `text`, in KiB. Returns `None` if there is no
/// such line, or if its value is not a number with the unit kB.
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
    fn frames_of_all_cpus_are_counted() {
        let text = "Node 0, zone    DMA32\n  pages free     1\n  pagesets\n    cpu: 0\n\
                    \x20             count: 2651\n              high:  13856\n    cpu: 1\n\
                    \x20             count: 9\n  vm stats threshold: 8\n";
        assert_eq!(held_by_cpus(text), 2660);
        assert_eq!(held_by_cpus("Node 0, zone DMA32\n  pages free 1\n"), 0);
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotal:  466284 kB\nMemFreeX: 1 kB\nMemFree:     436996 kB\n";
        assert_eq!(field(text, "MemFree"), Some(436_996));
        assert_eq!(field(text, "Mem"), None);
        assert_eq!(field("MemFree: lots", "MemFree"), None);
    }
}
