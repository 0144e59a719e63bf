//! Draws rows of the table as bars, each row on a scale of its own, with the spread of the rounds.

use super::{Number, Plot, class, text_width};
use crate::compare::give_back_mode::GiveBackMode;
use crate::compare::schema::{Better, Row};
use crate::compare::wording::{number, row_name, scale_of, times};
use maud::{Markup, html};

const BAR: f64 = 15.0;
const STEP: f64 = 20.0;
const HEAD: f64 = 24.0;
const AFTER: f64 = 16.0;
const TIMES_WIDTH: f64 = 96.0;

/// Draws `rows` of one experiment as bars, each row on a scale of its own. `title` is the plot's
/// title. The plot is `width` pixels wide, or a little wider if that is too narrow.
pub(crate) fn bars(rows: &[&Row], title: &str, width: f64) -> Plot {
    let both = rows
        .iter()
        .flat_map(|row| &row.cells)
        .any(|cell| cell.give_back != GiveBackMode::REPORTING);
    let narrow = width < 500.0;
    let names = if both {
        if narrow { 112.0 } else { 140.0 }
    } else {
        56.0
    };
    let mut top = 0.0;
    let mut groups: Vec<Markup> = Vec::new();
    let mut description = String::new();
    for row in rows {
        let others: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|other| other.metric == row.metric)
            .collect();
        let name = row_name(row, &others);
        let (unit, divisor) = scale_of(row);
        let most = row.cells.iter().map(|cell| cell.max).fold(0.0, f64::max);
        let values: Vec<String> = row
            .cells
            .iter()
            .map(|cell| format!("{} {unit}", number(cell.median / divisor)))
            .collect();
        let value_width = values
            .iter()
            .map(|text| text_width(text))
            .fold(0.0, f64::max)
            + 12.0;
        let room = (width - names - value_width).max(40.0);
        let at = |value: f64| {
            if most > 0.0 {
                names + room * (value.max(0.0) / most)
            } else {
                names
            }
        };
        let direction = match row.better {
            Better::Higher => "more is better",
            Better::Lower => "less is better",
        };
        groups.push(html! {
            g transform={ "translate(0 " (Number(top)) ")" } {
                text x="0" y="14" {
                    tspan class="head" { (name) }
                    @if !narrow { tspan class="muted" dx="8" { (direction) } }
                }
                @if let Some(ratio) = row.ratio {
                    text class={ "head end " (standing(ratio)) } x=(Number(width)) y="14" { (verdict(ratio)) }
                }
                @for (index, (cell, value)) in row.cells.iter().zip(&values).enumerate() {
                    @let y = HEAD + STEP * f64::from(u32::try_from(index).unwrap_or(0));
                    @let middle = y + BAR / 2.0;
                    @let end = at(cell.median);
                    text class="muted" x="0" y=(Number(middle + 4.0)) { (label(cell.guest, cell.give_back, both, narrow)) }
                    rect class={ "fill " (class(cell.guest)) @if is_faint(cell.give_back) { " off" } } x=(Number(names)) y=(Number(y))
                        width=(Number((end - names).max(1.0))) height=(Number(BAR)) rx="2" {}
                    @if cell.rounds > 1 && at(cell.max) - at(cell.min) > 2.0 {
                        path class="whisker" d={ "M" (Number(at(cell.min))) " " (Number(middle)) "L" (Number(at(cell.max))) " " (Number(middle))
                            "M" (Number(at(cell.min))) " " (Number(middle - 3.0)) "v6M" (Number(at(cell.max))) " " (Number(middle - 3.0)) "v6" } {}
                    }
                    text x=(Number(at(cell.max.max(cell.median)) + 7.0)) y=(Number(middle + 4.0)) { (value) }
                }
            }
        });
        let cells: Vec<String> = row
            .cells
            .iter()
            .zip(&values)
            .map(|(cell, value)| format!("{} {value}", cell.give_back.label(cell.guest, both)))
            .collect();
        description.push_str(&format!("{name} ({direction}): {}. ", cells.join(", ")));
        top += HEAD + STEP * f64::from(u32::try_from(row.cells.len()).unwrap_or(0)) + AFTER;
    }
    Plot {
        width: width.max(names + TIMES_WIDTH),
        height: (top - AFTER).max(1.0),
        title: title.to_owned(),
        description,
        body: html! { @for group in groups { (group) } },
    }
}

/// Returns the name of a bar.
fn label(
    guest: crate::compare::schema::Guest,
    mode: GiveBackMode,
    both: bool,
    narrow: bool,
) -> String {
    if narrow && both && mode == GiveBackMode::OFF {
        format!("{}, off", guest.name())
    } else {
        mode.label(guest, both)
    }
}

/// Returns whether bars of `mode` are faint: all but those of the mode that both kernels know, and
/// of Ebb's default.
fn is_faint(mode: GiveBackMode) -> bool {
    ![GiveBackMode::REPORTING, GiveBackMode::DEFAULT].contains(&mode)
}

/// Returns the CSS class of a ratio: `ahead`, `behind`, or `muted` for less than two percent.
pub(super) fn standing(ratio: f64) -> &'static str {
    match ratio {
        ratio if ratio > 1.02 => "ahead",
        ratio if ratio < 0.98 => "behind",
        _ => "muted",
    }
}

/// Returns the text for a ratio.
fn verdict(ratio: f64) -> String {
    match standing(ratio) {
        "ahead" => format!("{} better", times(ratio)),
        "behind" => format!("{} worse", times(1.0 / ratio)),
        _ => "even".to_owned(),
    }
}
