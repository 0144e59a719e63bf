//! Reads `/proc/buddyinfo`: the free blocks of each size.

/// The buddy order of a huge page: 2^9 base pages.
const HUGE_ORDER: u32 = 9;

/// The free memory of the guest at one moment, in base pages of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) pages: u64,
    /// The part of `pages` in blocks that are at least as large as a huge page.
    pub(crate) pages_in_huge_blocks: u64,
}

/// Reads the free memory of all zones from `/proc/buddyinfo`. Returns `None` if the file cannot be
/// read, lists no zone, or is malformed.
pub(crate) fn read() -> Option<Free> {
    parse(&std::fs::read_to_string("/proc/buddyinfo").ok()?)
}

/// Sums lines such as `Node 0, zone   Normal   4 5 4 …`, with a count for each order. Returns
/// `None` for another form.
fn parse(text: &str) -> Option<Free> {
    let mut free = Free {
        pages: 0,
        pages_in_huge_blocks: 0,
    };
    let mut zones = 0;
    for line in text.lines() {
        let counts = line.split_whitespace().skip_while(|word| *word != "zone");
        for (order, count) in (0_u32..).zip(counts.skip(2)) {
            let count: u64 = count.parse().ok()?;
            let pages = count.checked_mul(1_u64.checked_shl(order)?)?;
            free.pages += pages;
            if order >= HUGE_ORDER {
                free.pages_in_huge_blocks += pages;
            }
        }
        zones += 1;
    }
    (zones > 0).then_some(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_zones_are_summed() {
        let text = "Node 0, zone      DMA      1      0      0      0      0      0      0      0      0      2      1 \n\
                    Node 0, zone   Normal      3      1      0      0      0      0      0      0      1      0      4 \n";
        assert_eq!(
            parse(text),
            Some(Free {
                pages: 1 + 2 * 512 + 1024 + 3 + 2 + 256 + 4 * 1024,
                pages_in_huge_blocks: 2 * 512 + 1024 + 4 * 1024,
            })
        );
        assert_eq!(parse(""), None);
        assert_eq!(parse("Node 0, zone Normal many"), None);
    }
}
