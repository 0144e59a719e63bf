//! The columns of a table: guest kernels, and how they give memory back.

use super::schema::{Cell, Guest, Row};
use super::way::Way;

/// A column of a table: a guest kernel, and how it gives memory back.
pub(crate) type Column = (Guest, Way);

/// Returns the columns for which `rows` have cells, in the order of display.
///
/// If there are only the modes `reporting` and `off`, Ebb and Linux are next to each other for each
/// mode. Otherwise the modes of one kernel are next to each other.
pub(crate) fn columns<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for cell in rows.into_iter().flat_map(|row| &row.cells) {
        if !columns.contains(&(cell.guest, cell.give_back)) {
            columns.push((cell.guest, cell.give_back));
        }
    }
    let usual = |column: &Column| [Way::REPORTING, Way::OFF].contains(&column.1);
    if columns.iter().all(usual) {
        columns.sort_by_key(|(guest, way)| (*way, *guest));
    } else {
        let place = |way: Way| Way::all().into_iter().position(|known| known == way);
        columns.sort_by_key(|(guest, way)| (*guest, place(*way)));
    }
    columns
}

/// Returns the cell of `row` in `column`, or `None` if it has none.
pub(crate) fn cell(row: &Row, column: Column) -> Option<&Cell> {
    row.cells
        .iter()
        .find(|cell| (cell.guest, cell.give_back) == column)
}
