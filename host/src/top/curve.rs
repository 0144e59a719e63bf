//! The curve of the last minutes. The solid part is memory in use or reserved by the guest's
//! kernel. The light part is memory that is free in the guest and still resident on the host.

use super::amount::{Bytes, Seconds};
use super::palette::{Palette, Role};
use crate::registry::Moment;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

/// The width in columns of the labels on the left.
const LABEL: u16 = 8;
/// The shortest time span of the curve in milliseconds, so that a guest's first second does not
/// fill the screen.
const SPAN_MIN_MS: u64 = 10_000;
const EIGHTHS: [char; 8] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇'];

/// A widget that draws the curve of one guest's memory over time. It draws nothing if its area is
/// too small.
#[derive(Debug)]
pub(super) struct Curve<'a> {
    pub(super) points: &'a [Moment],
    /// The bytes that the guest's kernel reserved, which are neither used nor free.
    pub(super) reserved: u64,
    pub(super) palette: Palette,
    /// Whether the guest has ended, so the right edge is its end and not the current time.
    pub(super) ended: bool,
}

/// The values in one column of the screen.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Column {
    /// Used and reserved memory. `None` if the guest does not report its use.
    used: Option<u64>,
    resident: u64,
}

impl Curve<'_> {
    fn span_ms(&self) -> (u64, u64) {
        let first = self.points.first().map_or(0, |point| point.at_ms);
        let last = self.points.last().map_or(0, |point| point.at_ms);
        let span = last.saturating_sub(first).max(SPAN_MIN_MS);
        (last.saturating_sub(span), span)
    }

    /// Returns the values of `width` columns. Each value is the maximum of the column's points. A
    /// column without a point repeats the column before. Columns before the first point are `None`.
    fn columns(&self, width: usize) -> Vec<Option<Column>> {
        let mut columns: Vec<Option<Column>> = vec![None; width];
        let (start, span) = self.span_ms();
        for point in self.points {
            let inside = u128::from(point.at_ms.saturating_sub(start));
            let at = inside * (width.saturating_sub(1)) as u128 / u128::from(span);
            let Some(column) = usize::try_from(at).ok().and_then(|at| columns.get_mut(at)) else {
                continue;
            };
            let column = column.get_or_insert_default();
            let used = point.used_bytes;
            let used = used.map(|used| used.saturating_add(self.reserved));
            column.used = column.used.max(used);
            column.resident = column.resident.max(point.resident_bytes);
        }
        let mut last = None;
        for column in &mut columns {
            match column {
                Some(known) => last = Some(*known),
                None => *column = last,
            }
        }
        columns
    }
}

/// Returns a round number of bytes that is at least `bytes`: a power of two or three quarters of
/// one.
fn round_up(bytes: u64) -> u64 {
    let least = bytes.max(1 << 20);
    let power = least.checked_next_power_of_two().unwrap_or(u64::MAX);
    match power / 4 * 3 {
        smaller if smaller >= least => smaller,
        _ => power,
    }
}

impl Widget for Curve<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        if area.width <= LABEL + 2 || area.height < 3 {
            return;
        }
        let plot = Rect {
            x: area.x + LABEL,
            width: area.width - LABEL,
            height: area.height - 1,
            ..area
        };
        let columns = self.columns(usize::from(plot.width));
        let peak = columns
            .iter()
            .flatten()
            .map(|c| c.used.unwrap_or(0).max(c.resident))
            .max();
        let top = round_up(peak.unwrap_or(0));
        let quiet = self.palette.style(Role::Quiet);
        let label = |buffer: &mut Buffer, y: u16, bytes: u64| {
            buffer.set_string(area.x, y, format!("{:>7}", Bytes(bytes)), quiet);
        };
        label(buffer, plot.y, top);
        if plot.height >= 6 {
            label(buffer, plot.y + plot.height / 2, top / 2);
        }
        label(buffer, plot.bottom() - 1, 0);
        for (x, column) in (plot.x..plot.right()).zip(&columns) {
            let Some(column) = column else { continue };
            self.draw_column(plot, x, *column, top, buffer);
        }
        let (_, span) = self.span_ms();
        let foot = area.bottom() - 1;
        let began = format!("-{}", Seconds(span / 1000));
        buffer.set_string(plot.x, foot, began, quiet);
        let end = if self.ended { "end" } else { "now" };
        buffer.set_string(plot.right() - 3, foot, end, quiet);
    }
}

impl Curve<'_> {
    fn draw_column(&self, plot: Rect, x: u16, column: Column, top: u64, buffer: &mut Buffer) {
        let eighths = |bytes: u64| {
            let steps = u128::from(plot.height) * 8;
            let scaled = u128::from(bytes) * steps / u128::from(top.max(1));
            // A value above zero always shows.
            usize::try_from(scaled.min(steps))
                .unwrap_or(0)
                .max(usize::from(bytes > 0))
        };
        let (used, resident) = (eighths(column.used.unwrap_or(0)), eighths(column.resident));
        let (solid, light) = (
            self.palette.style(Role::Used),
            // Without the guest's use, resident memory is not drawn as free.
            self.palette.style(match column.used {
                Some(_) => Role::Held,
                None => Role::Quiet,
            }),
        );
        for row in 0..usize::from(plot.height) {
            let Ok(up) = u16::try_from(row) else { return };
            let y = plot.bottom() - 1 - up;
            let (full, floor) = (row * 8 + 8, row * 8);
            let (sign, style) = if used >= full {
                (self.palette.solid(), solid)
            } else if used > floor {
                if self.palette.unicode {
                    (EIGHTHS[used - floor], solid)
                } else {
                    (self.palette.solid(), solid)
                }
            } else if resident >= floor + 4 {
                (self.palette.light(), light)
            } else {
                break;
            };
            buffer[(x, y)].set_char(sign).set_style(style);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Palette = Palette {
        colour: false,
        unicode: false,
    };

    fn points() -> Vec<Moment> {
        let point = |at_ms, used: u64, resident: u64| Moment {
            at_ms,
            used_bytes: Some(used << 20),
            resident_bytes: resident << 20,
        };
        vec![
            point(0, 10, 10),
            point(10_000, 96, 96),
            point(20_000, 10, 48),
        ]
    }

    fn text(area: Rect, buffer: &Buffer) -> Vec<String> {
        (area.y..area.bottom())
            .map(|y| {
                (area.x..area.right())
                    .map(|x| buffer[(x, y)].symbol())
                    .collect()
            })
            .collect()
    }

    #[test]
    fn solid_is_used_and_light_is_held() {
        let area = Rect::new(0, 0, 20, 6);
        let mut buffer = Buffer::empty(area);
        let points = points();
        let curve = Curve {
            points: &points,
            reserved: 0,
            palette: PLAIN,
            ended: false,
        };
        curve.render(area, &mut buffer);
        assert_eq!(
            text(area, &buffer),
            [
                "  96.0M      ###### ",
                "             ###### ",
                "             ######:",
                "             ######:",
                "      0 ############",
                "        -20s     now",
            ]
        );
    }

    #[test]
    fn reserved_memory_is_solid() {
        let points = [Moment {
            at_ms: 0,
            used_bytes: Some(20 << 20),
            resident_bytes: 60 << 20,
        }];
        let columns = |reserved| {
            let curve = Curve {
                points: &points,
                reserved,
                palette: PLAIN,
                ended: false,
            };
            curve.columns(1)
        };
        let used = |bytes| {
            let resident = 60 << 20;
            vec![Some(Column {
                used: Some(bytes),
                resident,
            })]
        };
        assert_eq!(columns(0), used(20 << 20));
        assert_eq!(columns(30 << 20), used(50 << 20));
    }

    #[test]
    fn any_size_and_any_points_will_do() {
        let points = points();
        let odd = [
            Moment {
                at_ms: 9,
                used_bytes: None,
                resident_bytes: u64::MAX,
            },
            Moment {
                at_ms: 3,
                used_bytes: Some(u64::MAX),
                resident_bytes: 0,
            },
        ];
        for width in 0..40 {
            for height in 0..12 {
                for points in [&points[..], &odd[..], &[]] {
                    for unicode in [false, true] {
                        let area = Rect::new(0, 0, width, height);
                        let palette = Palette {
                            colour: true,
                            unicode,
                        };
                        let mut buffer = Buffer::empty(area);
                        Curve {
                            points,
                            reserved: u64::from(width),
                            palette,
                            ended: true,
                        }
                        .render(area, &mut buffer);
                    }
                }
            }
        }
    }

    #[test]
    fn the_top_is_round() {
        assert_eq!(round_up(0), 1 << 20);
        assert_eq!(round_up(90 << 20), 96 << 20);
        assert_eq!(round_up(100 << 20), 128 << 20);
        assert_eq!(round_up(1 << 30), 1 << 30);
    }
}
