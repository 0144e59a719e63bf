//! What the columns, the signs and the keys mean.

use super::columns::Column;
use super::margin::inside;
use super::palette::{Palette, Role};
use crate::registry::Cell;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

const COLUMNS: [Column; 10] = [
    Column::Memory,
    Column::Used,
    Column::Cache,
    Column::Free,
    Column::Resident,
    Column::Gap,
    Column::Overhead,
    Column::Reported,
    Column::ReportRate,
    Column::FaultRate,
];
const CELLS: [(Cell, &str); 8] = [
    (Cell::Full, "a block of 2 MiB without a free page"),
    (Cell::Huge, "a block that is one huge page"),
    (Cell::Pool, "a free page of a pool of huge pages"),
    (Cell::Partial(5), "partly in use, the higher the more"),
    (Cell::Held, "free, and the host still holds some of it"),
    (Cell::Returned, "free, and nothing of it is on the host"),
    (Cell::Isolated, "taken out, to be reported or moved"),
    (Cell::Reserved, "the kernel's own, never free"),
];
/// From this width on the signs stand beside the columns.
const BESIDE_FROM: u16 = 112;

/// Draws it.
pub(super) fn draw(palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    let area = inside(area, 2, 1);
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
        // A line between the two, if there is one to spare.
        let lines = u16::try_from(CELLS.len() + 2).unwrap_or(u16::MAX);
        (
            area.x,
            y + u16::from(area.bottom() >= y.saturating_add(lines)),
        )
    };
    line(x, y, "Map of a guest's memory", heading, "", 12);
    y += 1;
    for (cell, meaning) in CELLS {
        let sign = palette.sign(cell).to_string().repeat(2);
        line(x, y, &sign, palette.style(Palette::role(cell)), meaning, 12);
        y += 1;
    }
}
