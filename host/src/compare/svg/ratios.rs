//! Draws the overview: how many times better or worse Ebb is in each row, on a logarithmic scale.

use super::axis::{Logarithmic, log_ticks};
use super::bars::standing;
use super::{Number, Plot, text_width};
use crate::compare::wording::times;
use maud::html;

const ROW: f64 = 22.0;
const ROW_NARROW: f64 = 36.0;
const TOP: f64 = 26.0;

/// Draws one line for each of `rows`, which are names and ratios; a ratio above 1 means that Ebb is
/// better. `width` is in pixels.
pub(crate) fn ratios(rows: &[(String, f64)], width: f64) -> Plot {
    let narrow = width < 500.0;
    let names = if narrow {
        0.0
    } else {
        let longest = rows
            .iter()
            .map(|(name, _)| text_width(name))
            .fold(0.0, f64::max);
        (longest * 0.95 + 16.0).min(width * 0.5)
    };
    let row_height = if narrow { ROW_NARROW } else { ROW };
    let low = rows.iter().map(|(_, ratio)| *ratio).fold(0.8, f64::min);
    let high = rows.iter().map(|(_, ratio)| *ratio).fold(2.0, f64::max);
    let x = Logarithmic {
        from: (low, high),
        to: (names + 10.0, width - 56.0),
    };
    let height = TOP + row_height * f64::from(u32::try_from(rows.len()).unwrap_or(0));
    let bottom = height;
    let body = html! {
        @for value in log_ticks(low, high, if narrow { 5 } else { 9 }) {
            @if value != 1.0 {
                line class="grid" x1=(Number(x.at(value))) x2=(Number(x.at(value))) y1=(Number(TOP)) y2=(Number(bottom)) {}
            }
            text class="muted middle" x=(Number(x.at(value))) y="12" { (tick(value)) }
        }
        line class="axis" x1=(Number(x.at(1.0))) x2=(Number(x.at(1.0))) y1=(Number(TOP - 6.0)) y2=(Number(bottom)) {}
        @for (index, (name, ratio)) in rows.iter().enumerate() {
            @let top = TOP + row_height * f64::from(u32::try_from(index).unwrap_or(0));
            @let middle = top + if narrow { 26.0 } else { row_height / 2.0 };
            text x="0" y=(Number(if narrow { top + 14.0 } else { middle + 4.0 })) { (name) }
            line class={ "stem " (standing(*ratio)) } x1=(Number(x.at(1.0))) x2=(Number(x.at(*ratio))) y1=(Number(middle)) y2=(Number(middle)) {}
            circle class={ "dot " (standing(*ratio)) } cx=(Number(x.at(*ratio))) cy=(Number(middle)) r="5" {}
            text class="head" x=(Number(x.at(ratio.max(1.0)) + 10.0)) y=(Number(middle + 4.0)) { (times(*ratio)) }
        }
    };
    let list: Vec<String> = rows
        .iter()
        .map(|(name, ratio)| format!("{name}: {}", times(*ratio)))
        .collect();
    Plot {
        width,
        height: height + 4.0,
        title: "How many times better Ebb is".to_owned(),
        description: list.join("; "),
        body,
    }
}

/// Returns the text of a tick.
fn tick(value: f64) -> String {
    if value >= 1.0 {
        format!("{value:.0}×")
    } else {
        format!("{value:.1}×")
    }
}
