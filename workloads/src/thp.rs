//! Transparent huge pages: their availability, and the memory of a mapping.

use crate::mapping::{HUGE_BYTES, Mapping};
use crate::{Failure, meminfo, size};
use std::ops::Range;

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Checks that the guest has transparent huge pages, always or on advice. Fails with `Unsupported`
/// if it has none or has them switched off.
pub(crate) fn require() -> Result<(), Failure> {
    let text = std::fs::read_to_string(ENABLED)
        .map_err(|_| Failure::Unsupported("transparent huge pages".to_owned()))?;
    if text.contains("[never]") {
        return Err(Failure::Unsupported(format!(
            "transparent huge pages ({ENABLED} says never)"
        )));
    }
    Ok(())
}

/// Returns the size in bytes in the first of `words`, or `default` if there is none, rounded up to
/// whole huge pages. Fails with `Usage` if that word is no size: see [`size::parse`].
pub(crate) fn size(words: &[String], default: usize) -> Result<usize, Failure> {
    let bytes = words
        .first()
        .map_or(Ok(default), |word| size::parse(word))?;
    Ok(bytes.div_ceil(HUGE_BYTES) * HUGE_BYTES)
}

/// Returns the number of bytes in transparent huge pages, from `/proc/self/smaps`, of all areas
/// that overlap `mapping`. Fails with `Unsupported` if the kernel does not show it.
pub(crate) fn huge_bytes(mapping: &Mapping) -> Result<u64, Failure> {
    bytes_of(mapping, "AnonHugePages")
}

/// Returns the number of resident bytes, from `/proc/self/smaps`, of all areas that overlap
/// `mapping`. Fails with `Unsupported` if the kernel does not show it.
pub(crate) fn resident_bytes(mapping: &Mapping) -> Result<u64, Failure> {
    bytes_of(mapping, "Rss")
}

fn bytes_of(mapping: &Mapping, field: &str) -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/smaps")
        .map_err(|_| Failure::Unsupported("/proc/self/smaps".to_owned()))?;
    sum_kib(&text, field, &mapping.addresses())
        .map(|kib| kib << 10)
        .ok_or_else(|| Failure::Unsupported(format!("{field} in /proc/self/smaps")))
}

/// Returns the sum of a field in KiB over the areas that overlap `wanted`. Returns `None` if no
/// such area has the field.
fn sum_kib(smaps: &str, field: &str, wanted: &Range<usize>) -> Option<u64> {
    let mut inside = false;
    let mut sum = None;
    for line in smaps.lines() {
        if let Some(area) = area(line) {
            inside = area.start < wanted.end && wanted.start < area.end;
        } else if inside && let Some(kib) = meminfo::field(line, field) {
            *sum.get_or_insert(0) += kib;
        }
    }
    sum
}

/// Returns the addresses in an area's first line, `55d0-55e0 rw-p …`. Returns `None` for other
/// lines.
fn area(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_counted_in_the_areas_that_overlap() {
        let text = "1000-3000 rw-p 00000000 00:00 0\nRss: 8 kB\nAnonHugePages:  2048 kB\n\
                    3000-5000 rw-p 00000000 00:00 0\nAnonHugePages:  4096 kB\n\
                    ffff-fffff r--p 00000000 00:00 0 [vvar]\nAnonHugePages: 64 kB\n";
        assert_eq!(
            sum_kib(text, "AnonHugePages", &(0x1000..0x2000)),
            Some(2048)
        );
        assert_eq!(
            sum_kib(text, "AnonHugePages", &(0x2000..0x4000)),
            Some(6144)
        );
        assert_eq!(sum_kib(text, "Rss", &(0x1000..0x5000)), Some(8));
        assert_eq!(sum_kib(text, "AnonHugePages", &(0x5000..0x6000)), None);
        assert_eq!(
            sum_kib("1000-3000 rw-p\nRss: 8 kB\n", "AnonHugePages", &(0..0x2000)),
            None
        );
    }
}
