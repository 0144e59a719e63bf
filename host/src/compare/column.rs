//! The columns of a table: guest kernels, and how they give memory back.

use super::give_back_mode::GiveBackMode;
use super::schema::{Cell, Guest, Row};

/// A column of a table: a guest kernel, and how its guest gives memory back.
pub(crate) type Column = (Guest, GiveBackMode);

/// Returns the distinct columns for which `rows` have cells, in the order of display. If there are
/// only the modes `reporting` and `off`, Ebb and Linux are next to each other for each mode.
/// Otherwise the modes of one kernel are next to each other.
pub(crate) fn columns<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for cell in rows.into_iter().flat_map(|row| &row.cells) {
        if !columns.contains(&(cell.guest, cell.give_back)) {
            columns.push((cell.guest, cell.give_back));
        }
    }
    let usual = |column: &Column| [GiveBackMode::REPORTING, GiveBackMode::OFF].contains(&column.1);
    if columns.iter().all(usual) {
        columns.sort_by_key(|(guest, mode)| (*mode, *guest));
    } else {
        let place = |mode: GiveBackMode| {
            GiveBackMode::all()
                .into_iter()
                .position(|known| known == mode)
        };
        columns.sort_by_key(|(guest, mode)| (*guest, place(*mode)));
    }
    columns
}

/// Returns the cell of `row` in `column`. Returns `None` if no run in that column has the figure.
pub(crate) fn cell(row: &Row, column: Column) -> Option<&Cell> {
    row.cells
        .iter()
        .find(|cell| (cell.guest, cell.give_back) == column)
}
