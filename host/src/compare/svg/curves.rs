//! Draws memory over time: used memory in the guest, and resident memory on the host.

use super::axis::{Linear, ticks};
use super::{Number, Plot, class, text_width};
use crate::compare::schema::{Guest, Point};
use crate::compare::wording::number;
use maud::{Markup, html};
use std::fmt::Write as _;

/// The curves of one guest: resident memory and, if known, used memory.
#[derive(Clone, Debug)]
pub(crate) struct Curve<'a> {
    pub(crate) guest: Guest,
    pub(crate) points: &'a [Point],
    /// The time on the timeline that is 0 in the plot, in seconds.
    pub(crate) zero_s: f64,
    /// A time to mark, in seconds after `zero_s`, and its text.
    pub(crate) mark: Option<(f64, String)>,
    /// When the program ended, in seconds after `zero_s`. Later samples are not drawn.
    pub(crate) end_s: Option<f64>,
}

/// The memory curves of some guests on one pair of axes, with a heading.
#[derive(Clone, Debug)]
pub(crate) struct Panel<'a> {
    pub(crate) heading: String,
    pub(crate) curves: Vec<Curve<'a>>,
}

const MIB: f64 = 1_048_576.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 40.0;
const HEIGHT: f64 = 236.0;
const GAP: f64 = 24.0;
/// The minimum width of a plot whose panels are side by side.
const BESIDE: f64 = 600.0;
/// The maximum number of seconds before 0 that are drawn, since a stock kernel boots for long.
const BEFORE: f64 = 6.0;

/// A sample on the panel's axes: seconds and MiB.
type PlotPoint = (f64, f64);

/// Returns the samples of a curve that are drawn.
fn plot_points(curve: &Curve<'_>, what: fn(&Point) -> Option<f64>) -> Vec<PlotPoint> {
    let end = curve.end_s.unwrap_or(f64::INFINITY);
    curve
        .points
        .iter()
        .filter_map(|point| Some((point.t_ms / 1e3 - curve.zero_s, what(point)? / MIB)))
        .filter(|(at, _)| (-BEFORE..=end).contains(at))
        .collect()
}

/// Draws `panels` with common scales, side by side or below each other. `zero` describes the time
/// 0, as in "seconds since the program began". `width` is in pixels. The curves are thinned, but no
/// peak is lost.
pub(crate) fn curves(panels: &[Panel<'_>], zero: &str, width: f64) -> Plot {
    let mut low: f64 = 0.0;
    let (mut high, mut most) = (0.1, 1.0);
    for curve in panels.iter().flat_map(|panel| &panel.curves) {
        for what in [resident, used] {
            for (at, mib) in plot_points(curve, what) {
                low = low.min(at);
                high = f64::max(high, at);
                most = f64::max(most, mib);
            }
        }
    }
    let columns = if width >= BESIDE {
        panels.len().max(1)
    } else {
        1
    };
    let columns_f = f64::from(u32::try_from(columns).unwrap_or(1));
    let panel_width = (width - GAP * (columns_f - 1.0)) / columns_f;
    let rows = panels.len().div_ceil(columns);
    let rows_f = f64::from(u32::try_from(rows).unwrap_or(1));
    let panel_height = TOP + HEIGHT + BOTTOM;
    let mut description = String::new();
    let body = html! {
        @for (index, panel) in panels.iter().enumerate() {
            @let column = f64::from(u32::try_from(index % columns).unwrap_or(0));
            @let row = f64::from(u32::try_from(index / columns).unwrap_or(0));
            g transform={ "translate(" (Number(column * (panel_width + GAP))) " " (Number(row * panel_height)) ")" } {
                (draw(panel, (low, high), most, zero, panel_width))
            }
        }
    };
    for panel in panels {
        describe(&mut description, panel);
    }
    Plot {
        width,
        height: panel_height * rows_f,
        title: "Memory over time".to_owned(),
        description,
        body,
    }
}

fn resident(point: &Point) -> Option<f64> {
    point.resident
}

fn used(point: &Point) -> Option<f64> {
    point.used
}

/// Draws one panel.
fn draw(panel: &Panel<'_>, (low, high): (f64, f64), most: f64, zero: &str, width: f64) -> Markup {
    let x = Linear {
        from: (low, high),
        to: (LEFT, width - RIGHT),
    };
    let y = Linear {
        from: (0.0, most * 1.04),
        to: (TOP + HEIGHT, TOP),
    };
    let wide = width > 400.0;
    let y_ticks = ticks(0.0, most, 4);
    let top_tick = y_ticks.len().saturating_sub(1);
    html! {
        text class="head" x="0" y="14" { (panel.heading) }
        (legend(panel, 34.0, width))
        @for (index, value) in y_ticks.iter().enumerate() {
            line class="grid" x1=(Number(LEFT)) x2=(Number(width - RIGHT)) y1=(Number(y.at(*value))) y2=(Number(y.at(*value))) {}
            text class="muted end" x=(Number(LEFT - 8.0)) y=(Number(y.at(*value) + 4.0)) {
                (number_plain(*value)) @if index == top_tick { tspan class="muted" x=(Number(LEFT - 8.0)) dy="13" { "MiB" } }
            }
        }
        @for value in ticks(low, high, if wide { 8 } else { 5 }) {
            @if value == 0.0 && low < 0.0 {
                line class="axis" x1=(Number(x.at(value))) x2=(Number(x.at(value))) y1=(Number(TOP)) y2=(Number(TOP + HEIGHT)) {}
            }
            line class="axis" x1=(Number(x.at(value))) x2=(Number(x.at(value))) y1=(Number(TOP + HEIGHT)) y2=(Number(TOP + HEIGHT + 4.0)) {}
            text class="muted middle" x=(Number(x.at(value))) y=(Number(TOP + HEIGHT + 18.0)) { (number_plain(value)) }
        }
        line class="axis" x1=(Number(LEFT)) x2=(Number(width - RIGHT)) y1=(Number(TOP + HEIGHT)) y2=(Number(TOP + HEIGHT)) {}
        text class="muted end" x=(Number(width - RIGHT)) y=(Number(TOP + HEIGHT + 32.0)) { "seconds since " (zero) }
        @for curve in &panel.curves {
            @let seen = thinned(&plot_points(curve, resident), x, y);
            @if let (Some(first), Some(last)) = (seen.first(), seen.last()) {
                path class={ "area fill " (class(curve.guest)) }
                    d={ (path(&seen)) "L" (Number(last.0)) " " (Number(y.at(0.0))) "L" (Number(first.0)) " " (Number(y.at(0.0))) "Z" } {}
            }
        }
        @for curve in &panel.curves {
            path class={ "line used " (class(curve.guest)) } d=(path(&thinned(&plot_points(curve, used), x, y))) {}
            path class={ "line " (class(curve.guest)) } d=(path(&thinned(&plot_points(curve, resident), x, y))) {}
        }
        @for curve in &panel.curves {
            @if let Some((at, text)) = &curve.mark {
                @let there = plot_points(curve, resident).iter().rev().find(|(t, _)| t <= at).map_or(0.0, |(_, mib)| *mib);
                @let (cx, cy) = (x.at(*at), y.at(there));
                @let turned = cx + 8.0 + text_width(text) > width - RIGHT;
                circle class={ "dot fill " (class(curve.guest)) } cx=(Number(cx)) cy=(Number(cy)) r="4.5" {}
                text class={ "halo " (class(curve.guest)) @if turned { " end" } } x=(Number(if turned { cx - 8.0 } else { cx + 8.0 })) y=(Number(cy - 8.0)) { (text) }
            }
        }
    }
}

/// Draws the legend, in one row, or in a row for each guest if the panel is too narrow.
fn legend(panel: &Panel<'_>, top: f64, width: f64) -> Markup {
    const KEY: f64 = 18.0;
    const SPACE: f64 = 14.0;
    let mut entries = Vec::new();
    for curve in &panel.curves {
        for (what, style) in [("resident", ""), ("used", "used ")] {
            let known = if style.is_empty() { resident } else { used };
            if curve.points.iter().any(|point| known(point).is_some()) {
                let text = format!("{} {what}", curve.guest.name());
                entries.push((
                    curve.guest,
                    text,
                    format!("line {style}{}", class(curve.guest)),
                ));
            }
        }
    }
    let sum: f64 = entries
        .iter()
        .map(|(_, text, _)| KEY + text_width(text) + SPACE)
        .sum();
    let in_rows = sum > width;
    let (mut x, mut y) = (0.0, top);
    let mut last = None;
    let mut placed = Vec::new();
    for (guest, text, style) in entries {
        if in_rows && last.is_some_and(|last| last != guest) {
            (x, y) = (0.0, y + 15.0);
        }
        last = Some(guest);
        let taken = KEY + text_width(&text) + SPACE;
        placed.push((x, y, text, style));
        x += taken;
    }
    html! {
        @for (x, y, text, style) in placed {
            line class=(style) x1=(Number(x)) x2=(Number(x + 14.0)) y1=(Number(y - 4.0)) y2=(Number(y - 4.0)) {}
            text class="muted" x=(Number(x + KEY)) y=(Number(y)) { (text) }
        }
    }
}

/// Returns the text of a tick, without decimals if it is a whole number.
fn number_plain(value: f64) -> String {
    if value == value.round() {
        let sign = if value < 0.0 { "−" } else { "" };
        format!("{sign}{:.0}", value.abs())
    } else {
        number(value)
    }
}

/// Returns the coordinates of samples, reduced to the minimum and maximum of each column of pixels,
/// so that no peak is lost.
fn thinned(plot_points: &[PlotPoint], x: Linear, y: Linear) -> Vec<PlotPoint> {
    let mut kept: Vec<PlotPoint> = Vec::new();
    let mut column: Vec<PlotPoint> = Vec::new();
    let mut flush = |column: &mut Vec<PlotPoint>| {
        let least = column.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
        let most = column.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        if let (Some(least), Some(most)) = (least, most) {
            if least == most {
                kept.push(least);
            } else if least.0 <= most.0 {
                kept.extend([least, most]);
            } else {
                kept.extend([most, least]);
            }
        }
        column.clear();
    };
    for (at, mib) in plot_points {
        let place = (x.at(*at), y.at(*mib));
        if column.first().is_some_and(|first| place.0 - first.0 > 1.5) {
            flush(&mut column);
        }
        column.push(place);
    }
    flush(&mut column);
    kept
}

/// Returns the path through these coordinates.
fn path(plot_points: &[PlotPoint]) -> String {
    let mut text = String::new();
    for (index, (x, y)) in plot_points.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(text, "{letter}{} {}", Number(*x), Number(*y));
    }
    text
}

/// Appends a description of a panel for readers who cannot see it.
fn describe(text: &mut String, panel: &Panel<'_>) {
    for curve in &panel.curves {
        let held = plot_points(curve, resident);
        let peak = held.iter().map(|(_, mib)| *mib).fold(0.0, f64::max);
        let last = held.last().map_or(0.0, |(_, mib)| *mib);
        let _ = write!(
            text,
            "{}, {}: resident at most {} MiB, {} MiB at the end. ",
            panel.heading,
            curve.guest.name(),
            number(peak),
            number(last)
        );
        if let Some((_, mark)) = &curve.mark {
            let _ = write!(text, "{mark}. ");
        }
    }
}
