//! The help screen: the meaning of the columns, signs and keys.

use super::columns::Column;
use super::margin::inside;
use super::palette::{Palette, Role};
use crate::registry::Cell;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

const COLUMNS: [Column; 11] = [
    Column::Memory,
    Column::Used,
    Column::Cache,
    Column::Free,
    Column::Balloon,
    Column::Resident,
    Column::Gap,
    Column::Overhead,
    Column::Returned,
    Column::ReportRate,
    Column::FaultRate,
];
/// The kinds of pageblocks with their meanings. Two similar kinds share a line.
const CELLS: [([Cell; 2], &str); 8] = [
    ([Cell::Full; 2], "a block of 2 MiB without a free page"),
    ([Cell::Huge; 2], "a block that is one huge page"),
    (
        [Cell::Pool { free: false }, Cell::Pool { free: true }],
        "a page of the pool of huge pages, in use or free",
    ),
    (
        [Cell::Gib { free: false }, Cell::Gib { free: true }],
        "the same, as part of a page of 1 GiB",
    ),
    ([Cell::Partial(5); 2], "partly in use, the higher the more"),
    (
        [Cell::Held, Cell::Returned],
        "free; the host still holds some of it, or nothing",
    ),
    (
        [Cell::Isolated, Cell::Moving],
        "taken out: to be reported; what is in it moves",
    ),
    ([Cell::Reserved; 2], "the kernel's own, never free"),
];
/// The smallest width in columns at which the signs are to the right of the column headings.
const BESIDE_FROM: u16 = 112;

/// Draws the help screen into `area`: the meanings of columns and of the signs of the map. Lines
/// that do not fit are left out.
pub(super) fn draw(palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    // At the smallest size, the last line is just above the keys.
    let area = Rect {
        height: area.height.saturating_sub(1),
        ..inside(area, 2, 1)
    };
    let buffer = frame.buffer_mut();
    let heading = palette.style(Role::Heading);
    let mut line = |x: u16, y: u16, sign: &str, style: Style, text: &str, at: u16| {
        if y < area.bottom() && x + at < area.right() {
            let room = |from: u16| usize::from(area.right() - from);
            buffer.set_stringn(x, y, sign, room(x), style);
            buffer.set_stringn(x + at, y, text, room(x + at), Style::new());
        }
    };
    line(
        area.x,
        area.y,
        "Columns",
        heading,
        "K, M, G are KiB, MiB, GiB",
        12,
    );
    let mut y = area.y + 1;
    for column in COLUMNS {
        line(
            area.x,
            y,
            column.heading(),
            palette.style(Role::Key),
            column.meaning(),
            12,
        );
        y += 1;
    }
    let (x, mut y) = if area.width >= BESIDE_FROM {
        (area.x + 60, area.y)
    } else {
        // There is an empty line between the two parts if there is space.
        let lines = u16::try_from(CELLS.len() + 2).unwrap_or(u16::MAX);
        (
            area.x,
            y + u16::from(area.bottom() >= y.saturating_add(lines)),
        )
    };
    line(x, y, "Map of a guest's memory", heading, "", 12);
    y += 1;
    for ([first, second], meaning) in CELLS {
        for (at, cell, text) in [(0, first, ""), (1, second, meaning)] {
            let sign = palette.sign(cell).to_string();
            line(
                x + at,
                y,
                &sign,
                palette.style(Palette::role(cell)),
                text,
                12 - at,
            );
        }
        y += 1;
    }
}
