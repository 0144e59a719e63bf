//! The map of a guest's memory. Each cell is one pageblock, or several if there is not enough
//! space.

use super::amount::Bytes;
use super::palette::{Palette, Role};
use crate::registry::{BlockMap, Cell};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

/// The width in columns of the addresses on the left.
const LABEL: u16 = 8;
/// The largest width of a cell in columns.
const WIDTH_MAX: usize = 4;

/// A widget that draws the map of one guest's memory. It draws nothing if its area is too small.
#[derive(Debug)]
pub(super) struct Blocks<'a> {
    pub(super) map: &'a BlockMap,
    pub(super) palette: Palette,
}

/// The layout of the map: cells per line, columns per cell, and pageblocks per cell.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Grid {
    per_line: usize,
    width: usize,
    /// The number of pageblocks per cell.
    pub(super) blocks_a_cell: usize,
}

impl Grid {
    /// Returns the layout of `map` for an area of `columns` columns and `lines` lines. Each region
    /// starts a new line. Cells are as wide as fits; a cell stands for several pageblocks only if
    /// single ones do not fit. Returns `None` if the area is too small for any layout.
    pub(super) fn new(map: &BlockMap, columns: usize, lines: usize) -> Option<Self> {
        // A power of two of cells per line gives round addresses.
        let most = columns.checked_sub(usize::from(LABEL))?;
        let power = |most: usize| most.checked_ilog2().map(|log| 1usize << log);
        let fits = |per_line: usize, blocks_a_cell: usize| {
            let a_line = per_line.saturating_mul(blocks_a_cell);
            let regions = map.regions.iter();
            let needed: usize = regions
                .map(|region| region.blocks.chars().count().div_ceil(a_line))
                .sum();
            needed <= lines
        };
        for width in (1..=WIDTH_MAX).rev() {
            let per_line = power(most / width)?;
            if fits(per_line, 1) && (per_line >= 16 || width == 1) {
                return Some(Self {
                    per_line,
                    width,
                    blocks_a_cell: 1,
                });
            }
        }
        let per_line = power(most)?;
        // The steps 2, 3, 4, 6, 8, 12 and so on are finer than doubling and still round.
        let steps = (1..usize::BITS - 4).flat_map(|log| [1 << log, 3 << (log - 1)]);
        let steps = steps.skip_while(|step| *step < 2);
        let found = steps.into_iter().find(|step| fits(per_line, *step))?;
        Some(Self {
            per_line,
            width: 1,
            blocks_a_cell: found,
        })
    }
}

impl Grid {
    /// Returns the width of the map in columns of the screen, including the addresses on the left.
    pub(super) fn columns(self) -> u16 {
        let cells = u16::try_from(self.per_line * self.width).unwrap_or(u16::MAX);
        cells.saturating_add(LABEL)
    }
}

/// Returns the kind that is drawn for several pageblocks. If one kind has the majority and all
/// pageblocks are free or fully used, this is that kind. Otherwise it is their average use.
fn together(cells: &[Cell]) -> Cell {
    let count = |wanted: fn(&Cell) -> bool| cells.iter().filter(|cell| wanted(cell)).count();
    let reserved = count(|cell| *cell == Cell::Reserved);
    let isolated = count(|cell| *cell == Cell::Isolated);
    let rest = cells.len() - reserved;
    if reserved * 2 > cells.len() || rest == 0 {
        return Cell::Reserved;
    }
    if isolated * 2 >= rest {
        return Cell::Isolated;
    }
    // Only a few pageblocks move at a time, so a single one is shown.
    if cells.contains(&Cell::Moving) {
        return Cell::Moving;
    }
    let alike = |kinds: &[Cell]| {
        let of = |kind: &Cell| cells.iter().filter(|cell| *cell == kind).count();
        kinds.iter().copied().find(|kind| of(kind) * 2 > rest)
    };
    let free = [Cell::Pool { free: true }, Cell::Gib { free: true }];
    if let Some(kind) = alike(&free) {
        return kind;
    }
    let ninths: usize = cells
        .iter()
        .map(|cell| match cell {
            Cell::Partial(level) => usize::from(*level),
            Cell::Full | Cell::Huge | Cell::Pool { free: false } | Cell::Gib { free: false } => 9,
            _ => 0,
        })
        .sum();
    if ninths == 0 {
        let held = count(|cell| *cell == Cell::Held);
        return if held * 2 >= rest {
            Cell::Held
        } else {
            Cell::Returned
        };
    }
    if ninths == 9 * rest {
        let (pool, gib) = (Cell::Pool { free: false }, Cell::Gib { free: false });
        return alike(&[Cell::Huge, pool, gib]).unwrap_or(Cell::Full);
    }
    Cell::Partial(u8::try_from(ninths.div_ceil(rest)).unwrap_or(9).clamp(1, 9))
}

impl Widget for Blocks<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let (columns, lines) = (usize::from(area.width), usize::from(area.height));
        let Some(grid) = Grid::new(self.map, columns, lines) else {
            return;
        };
        let mut y = area.y;
        for region in &self.map.regions {
            let cells: Vec<Cell> = region.blocks.chars().map(Cell::of).collect();
            let a_line = grid.per_line * grid.blocks_a_cell;
            for (line, blocks) in cells.chunks(a_line).enumerate() {
                if y >= area.bottom() {
                    return;
                }
                let before = u64::try_from(line * a_line).unwrap_or(0);
                let offset = before.saturating_mul(self.map.block_bytes);
                let address = Bytes(region.start.saturating_add(offset));
                let quiet = self.palette.style(Role::Quiet);
                buffer.set_string(area.x, y, format!("{address:>7}"), quiet);
                let mut x = area.x + LABEL;
                for cell in blocks.chunks(grid.blocks_a_cell) {
                    let cell = together(cell);
                    for _ in 0..grid.width {
                        if x >= area.right() {
                            break;
                        }
                        buffer[(x, y)]
                            .set_char(self.palette.sign(cell))
                            .set_style(self.palette.style(Palette::role(cell)));
                        x += 1;
                    }
                }
                y += 1;
            }
        }
    }
}

/// Returns an entry for each kind of pageblock, in the order of the legend: a cell of the kind, its
/// name, and the number of such pageblocks in `map`, which may be 0.
pub(super) fn legend(map: &BlockMap) -> [(Cell, &'static str, u64); 12] {
    let counts = &map.counts;
    [
        (Cell::Full, "full", counts.full),
        (Cell::Huge, "huge", counts.huge),
        (Cell::Partial(5), "partly", counts.partial),
        (Cell::Held, "held", counts.held),
        (Cell::Returned, "returned", counts.returned),
        (Cell::Pool { free: false }, "pool", counts.pool_used),
        (Cell::Pool { free: true }, "pool free", counts.pool_free),
        (Cell::Gib { free: false }, "1G", counts.gib_used),
        (Cell::Gib { free: true }, "1G free", counts.gib_free),
        (Cell::Isolated, "isolated", counts.isolated),
        (Cell::Moving, "moving", counts.moving),
        (Cell::Reserved, "kernel", counts.reserved),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Counts, Region};

    const PLAIN: Palette = Palette {
        colour: false,
        unicode: false,
    };

    fn map(regions: &[(u64, &str)]) -> BlockMap {
        let mut counts = Counts::default();
        let regions = regions.iter().map(|(start, blocks)| {
            blocks
                .chars()
                .for_each(|letter| counts.add(Cell::of(letter)));
            Region {
                start: *start,
                blocks: (*blocks).to_owned(),
            }
        });
        let regions = regions.collect();
        BlockMap {
            block_bytes: 2 << 20,
            counts,
            regions,
        }
    }

    fn drawn(map: &BlockMap, width: u16, height: u16) -> Vec<String> {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        let blocks = Blocks {
            map,
            palette: PLAIN,
        };
        blocks.render(area, &mut buffer);
        let line = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn blocks_stand_at_their_addresses() {
        let low = format!("##5{}", ".".repeat(29));
        let map = map(&[(0, &low), (4 << 30, "oooo!xHH")]);
        assert_eq!(
            drawn(&map, 24, 4),
            [
                "      0 ##5.............",
                "  32.0M ................",
                "  4.00G oooo!xHH",
                "",
            ]
        );
    }

    #[test]
    fn few_blocks_are_wide_and_many_are_put_together() {
        let few = map(&[(0, &"#".repeat(16))]);
        assert_eq!(drawn(&few, 80, 4)[0], format!("      0 {}", "#".repeat(64)));
        let many = map(&[(0, &"##..".repeat(65_536))]);
        let lines = drawn(&many, 80, 8);
        assert_eq!(lines[0], format!("      0 {}", "5".repeat(64)));
        assert_eq!(lines[1], format!("  64.0G {}", "5".repeat(64)));
        assert_eq!(lines.len(), 8);
        assert_eq!(lines[7], format!("   448G {}", "5".repeat(64)));
    }

    #[test]
    fn the_lines_there_are_are_used() {
        let (low, high) = (".".repeat(1536), ".".repeat(512));
        let map = map(&[(0, &low), (4 << 30, &high)]);
        let grid = |lines| Grid::new(&map, 80, lines).map(|grid| grid.blocks_a_cell);
        assert_eq!(grid(1), None);
        assert_eq!(grid(2), Some(24));
        assert_eq!(grid(6), Some(6));
        assert_eq!(grid(7), Some(6));
        assert_eq!(grid(8), Some(4));
        assert_eq!(grid(32), Some(1));
    }

    #[test]
    fn a_cell_of_many_blocks_says_what_they_are() {
        let of = |letters: &str| together(&letters.chars().map(Cell::of).collect::<Vec<_>>());
        assert_eq!(of("...o"), Cell::Returned);
        assert_eq!(of("..oo"), Cell::Held);
        assert_eq!(of("####"), Cell::Full);
        assert_eq!(of("HHH#"), Cell::Huge);
        assert_eq!(of("1..."), Cell::Partial(1));
        assert_eq!(of("#..."), Cell::Partial(3));
        assert_eq!(of("xxx#"), Cell::Reserved);
        assert_eq!(of("x###"), Cell::Full);
        assert_eq!(of("!!#."), Cell::Isolated);
        assert_eq!(of("####m.."), Cell::Moving);
        assert_eq!(of("PPP#"), Cell::Pool { free: false });
        assert_eq!(of("GGGH"), Cell::Gib { free: false });
        assert_eq!(of("PPHH"), Cell::Full);
        assert_eq!(of("ppp#"), Cell::Pool { free: true });
        assert_eq!(of("ggg."), Cell::Gib { free: true });
        assert_eq!(of("ppPP"), Cell::Partial(5));
    }

    #[test]
    fn any_size_will_do() {
        let map = map(&[
            (0, &".".repeat(700)),
            (4 << 30, &"#".repeat(33)),
            (8 << 30, ""),
        ]);
        for width in 0..90 {
            for height in 0..14 {
                drawn(&map, width, height);
            }
        }
    }
}
