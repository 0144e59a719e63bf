//! The columns of a table: guest kernels, and how they give memory back.

use super::give_back_mode::GiveBackMode;
use super::schema::{Cell, Guest, Row};

/// A column of a table: a guest kernel, and how its guest gives memory back.
pub(crate) type Column = (Guest, GiveBackMode);

/// The modes in which the kernels are compared: in the first of them that both kernels have.
pub(crate) const COMPARED: [GiveBackMode; 2] = [GiveBackMode::REPORTING, GiveBackMode::OFF];

/// Returns the distinct columns for which `rows` have cells, in the order of display. If there are
/// only the usual modes, Ebb in its default mode comes first, and then Ebb and Linux next to each
/// other for `reporting` and for `off`. Otherwise the modes of one kernel are next to each other.
pub(crate) fn columns<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for cell in rows.into_iter().flat_map(|row| &row.cells) {
        if !columns.contains(&(cell.guest, cell.give_back)) {
            columns.push((cell.guest, cell.give_back));
        }
    }
    const USUAL: [GiveBackMode; 3] = [
        GiveBackMode::DEFAULT,
        GiveBackMode::REPORTING,
        GiveBackMode::OFF,
    ];
    let usual = |mode: GiveBackMode| USUAL.iter().position(|known| *known == mode);
    if columns.iter().all(|(_, mode)| usual(*mode).is_some()) {
        columns.sort_by_key(|(guest, mode)| (usual(*mode), *guest));
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

/// Returns the cells of Ebb and of Linux whose figures the ratio of `row` compares: with reporting,
/// and without it only if one of the two has no figure with reporting. Returns `None` if neither
/// mode has both.
pub(crate) fn compared(row: &Row) -> Option<[&Cell; 2]> {
    COMPARED.into_iter().find_map(|mode| {
        Some([
            cell(row, (Guest::Ebb, mode))?,
            cell(row, (Guest::Linux, mode))?,
        ])
    })
}
