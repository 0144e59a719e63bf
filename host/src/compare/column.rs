//! The columns of a table: guests, and their ways to give memory back.

use super::schema::{Cell, Guest, Row};
use super::way::Way;

/// A column of a table: a guest that gives memory back in one way.
pub(crate) type Column = (Guest, Way);

/// The columns that rows have cells for: Ebb beside Linux where both do the same, else the ways of
/// one kernel beside each other.
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

/// What a row says of a column.
pub(crate) fn cell(row: &Row, column: Column) -> Option<&Cell> {
    row.cells
        .iter()
        .find(|cell| (cell.guest, cell.give_back) == column)
}
