//! Linux's two indices of fragmentation, as `/sys/kernel/debug/extfrag` shows them.

use crate::{Order, stats::FreeAreas};

impl FreeAreas {
    /// Returns the number of free blocks of all orders from 0 to 10 together.
    pub fn blocks(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    /// Returns Linux's *unusable free space index*: the part of the free memory, in thousandths,
    /// that a request of `order` cannot use because it is in smaller blocks.
    ///
    /// 0 means that all free memory can be used. 1000 means that none can, or that no memory is
    /// free.
    pub fn unusable_index(&self, order: Order) -> u32 {
        let free = self.frames();
        if free == 0 {
            return 1000;
        }
        let usable: u64 = Order::all()
            .filter(|&of| of >= order)
            .map(|of| self.count(of, None) * of.frames())
            .sum();
        // At most 1000, as the usable frames are a part of the free ones.
        u32::try_from((free - usable) * 1000 / free).unwrap_or(1000)
    }

    /// Returns Linux's *fragmentation index*: why a request of `order` would fail, in thousandths.
    ///
    /// Values towards 0 mean lack of memory, values towards 1000 fragmentation. -1000 means that
    /// the request would not fail. 0 is also the result if no block is free.
    pub fn fragmentation_index(&self, order: Order) -> i32 {
        let suitable = Order::all().any(|of| of >= order && self.count(of, None) != 0);
        if suitable {
            return -1000;
        }
        let blocks = self.blocks();
        if blocks == 0 {
            return 0;
        }
        let wanted = (1000 + self.frames() * 1000 / order.frames()) / blocks;
        1000 - i32::try_from(wanted).unwrap_or(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(order: u8) -> Order {
        Order::new(order).unwrap_or(Order::BASE)
    }

    #[test]
    fn without_free_memory_none_is_usable_and_it_is_not_fragmented() {
        let none = FreeAreas::default();
        assert_eq!(none.unusable_index(order(9)), 1000);
        assert_eq!(none.fragmentation_index(order(9)), 0);
    }

    #[test]
    fn a_gib_has_indices_though_no_free_block_counts_as_one() {
        let mut areas = FreeAreas::default();
        assert_eq!(areas.count(Order::GIB, None), 0);
        areas.counts[10][1] = 256;
        assert_eq!(areas.count(Order::GIB, Some(crate::Mobility::Movable)), 0);
        assert_eq!(areas.unusable_index(Order::GIB), 1000);
        // 1000 - (1000 + 262144 * 1000 / 262144) / 256
        assert_eq!(areas.fragmentation_index(Order::GIB), 1000 - 7);
    }

    #[test]
    fn figures_are_those_of_linux() {
        // `Node 0, zone Normal 4 3 0 1 0 0 0 0 0 0 0` in /proc/buddyinfo: 18 frames in 8 blocks.
        let mut areas = FreeAreas::default();
        areas.counts[0] = [1, 3, 0];
        areas.counts[1][0] = 3;
        areas.counts[3][2] = 1;
        assert_eq!(areas.frames(), 18);
        assert_eq!(areas.blocks(), 8);
        assert_eq!(areas.unusable_index(order(0)), 0);
        assert_eq!(areas.unusable_index(order(1)), 222);
        assert_eq!(areas.unusable_index(order(2)), 555);
        assert_eq!(areas.unusable_index(order(4)), 1000);
        assert_eq!(areas.fragmentation_index(order(3)), -1000);
        // 1000 - (1000 + 18 * 1000 / 16) / 8
        assert_eq!(areas.fragmentation_index(order(4)), 1000 - 265);
    }
}
