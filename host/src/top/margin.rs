//! Margins.

use ratatui::layout::{Margin, Rect};

/// The part of `area` that a margin leaves.
pub(super) fn inside(area: Rect, columns: u16, rows: u16) -> Rect {
    area.inner(Margin::new(columns, rows))
}
