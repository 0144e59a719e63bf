//! Draws the overview: how many times better or worse Ebb is in each row, on a logarithmic scale.

use super::axis::{Logarithmic, log_ticks};
use super::bars::standing;
use super::{Number, Plot, text_width};
use crate::compare::schema::Interval;
use crate::compare::wording::times;
use maud::html;

const ROW: f64 = 22.0;
const ROW_NARROW: f64 = 36.0;
const TOP: f64 = 26.0;
/// The height of the line that explains hollow dots.
const LEGEND: f64 = 22.0;
const HOLLOW: &str = "Hollow: not settled; a line shows the interval";

/// A ratio with its name in the plot.
pub(crate) struct NamedRatio {
    pub(crate) name: String,
    /// How many times better Ebb is, above 1 if it is.
    pub(crate) ratio: f64,
    /// The interval in which the ratio lies, or `None` if there is only one boot.
    pub(crate) interval: Option<Interval>,
}

impl NamedRatio {
    /// Returns the bounds between which the plot draws a line, or `None` if the ratio has settled
    /// or has no interval.
    fn unsettled(&self) -> Option<Interval> {
        self.interval.filter(|interval| !interval.is_settled())
    }

    /// Returns the highest value that the plot draws for this ratio.
    fn high(&self) -> f64 {
        self.unsettled()
            .map_or(self.ratio, |interval| interval.high)
    }

    /// Returns the lowest value that the plot draws for this ratio.
    fn low(&self) -> f64 {
        self.unsettled().map_or(self.ratio, |interval| interval.low)
    }
}

/// Draws one line for each of `rows`. A ratio that has not settled is a hollow dot, with a line
/// through its interval. `width` is in pixels.
pub(crate) fn ratios(rows: &[NamedRatio], width: f64) -> Plot {
    let narrow = width < 500.0;
    let names = if narrow {
        0.0
    } else {
        let longest = rows
            .iter()
            .map(|row| text_width(&row.name))
            .fold(0.0, f64::max);
        (longest * 0.95 + 16.0).min(width * 0.5)
    };
    let row_height = if narrow { ROW_NARROW } else { ROW };
    let low = rows.iter().map(NamedRatio::low).fold(0.8, f64::min);
    let high = rows.iter().map(NamedRatio::high).fold(2.0, f64::max);
    let x = Logarithmic {
        from: (low, high),
        to: (names + 10.0, width - 56.0),
    };
    let bottom = TOP + row_height * f64::from(u32::try_from(rows.len()).unwrap_or(0));
    let is_hollow = rows.iter().any(|row| row.unsettled().is_some());
    let height = bottom + if is_hollow { LEGEND } else { 0.0 };
    let body = html! {
        @for value in log_ticks(low, high, if narrow { 5 } else { 9 }) {
            @if value != 1.0 {
                line class="grid" x1=(Number(x.at(value))) x2=(Number(x.at(value))) y1=(Number(TOP)) y2=(Number(bottom)) {}
            }
            text class="muted middle" x=(Number(x.at(value))) y="12" { (tick(value)) }
        }
        line class="axis" x1=(Number(x.at(1.0))) x2=(Number(x.at(1.0))) y1=(Number(TOP - 6.0)) y2=(Number(bottom)) {}
        @for (index, row) in rows.iter().enumerate() {
            @let ratio = row.ratio;
            @let top = TOP + row_height * f64::from(u32::try_from(index).unwrap_or(0));
            @let middle = top + if narrow { 26.0 } else { row_height / 2.0 };
            text x="0" y=(Number(if narrow { top + 14.0 } else { middle + 4.0 })) { (row.name) }
            line class={ "stem " (standing(ratio)) } x1=(Number(x.at(1.0))) x2=(Number(x.at(ratio))) y1=(Number(middle)) y2=(Number(middle)) {}
            @if let Some(interval) = row.unsettled() {
                line class="whisker" x1=(Number(x.at(interval.low))) x2=(Number(x.at(interval.high))) y1=(Number(middle)) y2=(Number(middle)) {}
                circle class={ "hollow " (standing(ratio)) } cx=(Number(x.at(ratio))) cy=(Number(middle)) r="4.5" {}
            } @else {
                circle class={ "dot " (standing(ratio)) } cx=(Number(x.at(ratio))) cy=(Number(middle)) r="5" {}
            }
            text class="head" x=(Number(x.at(row.high().max(1.0)) + 10.0)) y=(Number(middle + 4.0)) { (times(ratio)) }
        }
        @if is_hollow {
            text class="muted" x="0" y=(Number(height - 4.0)) { (HOLLOW) }
        }
    };
    let list: Vec<String> = rows
        .iter()
        .map(|row| {
            let mark = if row.unsettled().is_some() {
                ", not settled"
            } else {
                ""
            };
            format!("{}: {}{mark}", row.name, times(row.ratio))
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_that_has_not_settled_is_hollow() {
        let row = |low, high| NamedRatio {
            name: "a: b".into(),
            ratio: 3.0,
            interval: Some(Interval {
                boots: 6,
                low,
                high,
                confidence: None,
            }),
        };
        let drawn = |rows: &[NamedRatio]| ratios(rows, 800.0).standalone();
        let settled = drawn(&[row(2.95, 3.05)]);
        assert!(!settled.contains("class=\"hollow") && !settled.contains(HOLLOW));
        let wide = drawn(&[row(2.0, 4.0)]);
        assert!(wide.contains("class=\"hollow ahead\"") && wide.contains(HOLLOW));
        assert!(wide.contains("not settled"));
    }
}
