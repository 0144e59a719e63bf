//! Draws distributions by percentile, on a logarithmic scale.

use super::axis::{Linear, Logarithmic, log_ticks, spread_out};
use super::{Number, Plot, class, text_width};
use crate::compare::give_back_mode::GiveBackMode;
use crate::compare::schema::Guest;
use crate::compare::wording::{number, scale};
use maud::html;
use std::fmt::Write as _;

/// The distribution of one guest's values, drawn as a line with a name.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) guest: Guest,
    pub(crate) give_back: GiveBackMode,
    pub(crate) name: String,
    /// Pairs of a percentage and the value that this percentage of all values does not exceed.
    pub(crate) percentiles: Vec<(f64, f64)>,
}

const LEFT: f64 = 64.0;
const TOP: f64 = 34.0;
const HEIGHT: f64 = 240.0;
const BOTTOM: f64 = 38.0;
const TICKS: [f64; 6] = [5.0, 25.0, 50.0, 75.0, 95.0, 100.0];

/// Draws `lines` on common axes, the percentage to the right and the value upwards. `name` and
/// `unit` describe the values; `width` is in pixels. Values that are not positive are left out.
pub(crate) fn percentiles(lines: &[Line], name: &str, unit: &str, width: f64) -> Plot {
    let positive = || {
        lines
            .iter()
            .flat_map(|line| &line.percentiles)
            .map(|(_, value)| *value)
            .filter(|value| *value > 0.0)
    };
    let low = positive().fold(f64::INFINITY, f64::min);
    let high = positive().fold(0.0, f64::max);
    let (low, high) = if low <= high {
        (low * 0.9, high * 1.1)
    } else {
        (1.0, 10.0)
    };
    let labels = lines
        .iter()
        .map(|line| text_width(&line.name))
        .fold(0.0, f64::max)
        + 18.0;
    let right = width - labels.min(width * 0.4);
    let x = Linear {
        from: (0.0, 100.0),
        to: (LEFT, right),
    };
    let y = Logarithmic {
        from: (low, high),
        to: (TOP + HEIGHT, TOP),
    };
    let shown = |value: f64| match scale(unit, value) {
        Some(scale) => format!("{} {}", number(value / scale.divisor), scale.unit),
        None => format!("{} {unit}", number(value)),
    };
    let ends: Vec<f64> = lines
        .iter()
        .map(|line| {
            y.at(line
                .percentiles
                .last()
                .map_or(low, |(_, value)| value.max(low)))
        })
        .collect();
    let places = spread_out(&ends, 16.0, TOP, TOP + HEIGHT);
    let mut description = String::new();
    for line in lines {
        let list: Vec<String> = line
            .percentiles
            .iter()
            .map(|(share, value)| format!("{share} % {}", shown(*value)))
            .collect();
        let _ = write!(description, "{}: {}. ", line.name, list.join(", "));
    }
    let body = html! {
        text class="head" x="0" y="14" { (name) ", by percentile" }
        @for value in log_ticks(low, high, 6) {
            line class="grid" x1=(Number(LEFT)) x2=(Number(right)) y1=(Number(y.at(value))) y2=(Number(y.at(value))) {}
            text class="muted end" x=(Number(LEFT - 8.0)) y=(Number(y.at(value) + 4.0)) { (shown(value)) }
        }
        line class="axis" x1=(Number(LEFT)) x2=(Number(right)) y1=(Number(TOP + HEIGHT)) y2=(Number(TOP + HEIGHT)) {}
        @for value in TICKS {
            @if width >= 500.0 || value != 95.0 {
                text class="muted middle" x=(Number(x.at(value))) y=(Number(TOP + HEIGHT + 18.0)) { (value) @if value == 50.0 { " %" } }
            }
        }
        @for (index, line) in lines.iter().enumerate() {
            @let style = format!("{}{}", class(line.guest), if line.give_back == GiveBackMode::REPORTING { "" } else { " off" });
            path class={ "line " (style) } d=(path(line, x, y)) {}
            @let place = places.get(index).copied().unwrap_or(TOP);
            @let end = ends.get(index).copied().unwrap_or(TOP);
            path class="leader" d={ "M" (Number(right + 2.0)) " " (Number(end)) "L" (Number(right + 10.0)) " " (Number(place)) } {}
            text class=(class(line.guest)) x=(Number(right + 13.0)) y=(Number(place + 4.0)) { (line.name) }
        }
    };
    Plot {
        width,
        height: TOP + HEIGHT + BOTTOM,
        title: format!("{name}, by percentile"),
        description,
        body,
    }
}

/// Returns the path of a line.
fn path(line: &Line, x: Linear, y: Logarithmic) -> String {
    let mut text = String::new();
    for (share, value) in line.percentiles.iter().filter(|(_, value)| *value > 0.0) {
        let letter = if text.is_empty() { 'M' } else { 'L' };
        let _ = write!(
            text,
            "{letter}{} {}",
            Number(x.at(*share)),
            Number(y.at(*value))
        );
    }
    text
}
