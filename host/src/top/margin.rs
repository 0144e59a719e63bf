//! Margins of screen areas.

use ratatui::layout::{Margin, Rect};

/// Returns `area` without a margin of `columns` columns on the left and right and of `rows` lines
/// at the top and bottom. The result is empty if `area` is too small.
pub(super) fn inside(area: Rect, columns: u16, rows: u16) -> Rect {
    area.inner(Margin::new(columns, rows))
}
