//! Margins of screen areas.

use ratatui::layout::{Margin, Rect};

/// Returns `area` without a margin of `columns` on the left and right and of `rows` at the top and
/// bottom.
pub(super) fn inside(area: Rect, columns: u16, rows: u16) -> Rect {
    area.inner(Margin::new(columns, rows))
}
