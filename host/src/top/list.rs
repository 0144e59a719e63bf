//! The list of guests.

use super::app::{App, Guest, State};
use super::columns::{Column, GAP, noted, padded};
use super::margin::inside;
use super::palette::{Palette, Role};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

/// The smallest width in columns at which the list has a bar.
const BAR_FROM: u16 = 76;
const BAR_MIN: u16 = 10;
const BAR_MAX: u16 = 28;

/// Draws the list of guests into `area`, so that the selected guest is visible. Without guests,
/// draws a hint how to start one, but nothing before the first figures. Draws nothing if `area` is
/// too small.
pub(super) fn draw(app: &App, palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    if app.guests.is_empty() {
        empty(app.asked, palette, frame, area);
        return;
    }
    let area = inside(area, 1, 1);
    if area.height < 2 {
        return;
    }
    let bar = if area.width >= BAR_FROM {
        (area.width / 8).clamp(BAR_MIN, BAR_MAX)
    } else {
        0
    };
    let gap = u16::try_from(GAP).unwrap_or(0);
    let room = area.width - if bar == 0 { 0 } else { bar + gap };
    let columns = Column::fitting(usize::from(room));
    let buffer = frame.buffer_mut();
    let mut at = Cursor::new(area, 0);
    for (column, width) in &columns {
        let heading = padded(column.heading(), *width, column.is_text());
        let style = palette.style(Role::Heading);
        let start = at.x;
        at.put(buffer, &heading, style);
        if *column == app.sort {
            // The sign for the order is in the gap next to the heading.
            let sign = if palette.unicode { "▾" } else { "v" };
            let sign = match (app.reverse, palette.unicode) {
                (true, true) => "▴",
                (true, false) => "^",
                _ => sign,
            };
            let length = u16::try_from(column.heading().len()).unwrap_or(0);
            let x = if column.is_text() {
                Some(start + length)
            } else {
                (at.x - length).checked_sub(1)
            };
            if let Some(x) = x.filter(|x| (area.x..area.right()).contains(x)) {
                buffer.set_string(x, area.y, sign, palette.style(Role::Key));
            }
        }
        at.skip(gap);
        if *column == Column::Name && bar > 0 {
            let heading = padded("IN USE", usize::from(bar), true);
            at.put(buffer, &heading, style);
            at.skip(gap);
        }
    }
    // The last line shows the selected guest's program and process number, for which there may be
    // no column.
    let rows = usize::from(area.height).saturating_sub(3).max(1);
    let place = app.place().unwrap_or(0);
    let first = (place + 1).saturating_sub(rows);
    for (row, guest) in app.guests.iter().skip(first).take(rows).enumerate() {
        let Ok(row) = u16::try_from(row) else { break };
        let line = Rect {
            y: area.y + 1 + row,
            height: 1,
            ..area
        };
        if line.y >= area.bottom() {
            break;
        }
        draw_guest(guest, &columns, bar, palette, buffer, line);
        if first + usize::from(row) == place {
            buffer.set_style(line, palette.style(Role::Selected));
        }
    }
    if area.height >= 4
        && let Some(guest) = app.selected_guest()
    {
        let text = match &guest.figures {
            Some(figures) => format!("{}   pid {}", figures.program, figures.pid),
            None => guest.id.to_string(),
        };
        let text = padded(&text, usize::from(area.width), true);
        buffer.set_string(area.x, area.bottom() - 1, text, palette.style(Role::Quiet));
    }
}

fn draw_guest(
    guest: &Guest,
    columns: &[(Column, usize)],
    bar: u16,
    palette: Palette,
    buffer: &mut Buffer,
    line: Rect,
) {
    let gap = u16::try_from(GAP).unwrap_or(0);
    let (style, note) = match guest.state {
        State::Here => (Style::new(), None),
        State::Silent => (palette.style(Role::Quiet), Some("silent")),
        State::Ended(_) => (palette.style(Role::Quiet), Some("ended")),
    };
    let mut at = Cursor::new(line, 0);
    let Some(figures) = &guest.figures else {
        let text = format!("{} does not answer", guest.id);
        at.put(buffer, &padded(&text, usize::from(line.width), true), style);
        return;
    };
    let note = note.or_else(|| figures.standstill_word());
    for (column, width) in columns {
        let cell = column.cell(figures);
        let cell = match note {
            Some(note) if *column == Column::Name => noted(&cell, note, *width),
            _ => cell,
        };
        at.put(buffer, &padded(&cell, *width, column.is_text()), style);
        at.skip(gap);
        if *column == Column::Name && bar > 0 {
            let share = |bytes: u64| {
                let scaled = u128::from(bytes) * u128::from(bar);
                let cells = scaled.div_ceil(u128::from(figures.memory_bytes.max(1)));
                u16::try_from(cells).unwrap_or(bar).min(bar)
            };
            let used = share(figures.kept_bytes().unwrap_or(0));
            let resident = share(figures.resident_bytes);
            let ended = matches!(guest.state, State::Ended(_));
            for cell in 0..bar {
                let (sign, role) = if ended || cell >= used.max(resident) {
                    (if palette.unicode { '·' } else { '.' }, Role::Quiet)
                } else if cell < used {
                    (palette.solid(), Role::Used)
                } else {
                    (palette.light(), Role::Held)
                };
                at.put(buffer, &sign.to_string(), palette.style(role));
            }
            at.skip(gap);
        }
    }
}

/// The position of the next text in a line. Text beyond the end is cut.
struct Cursor {
    line: Rect,
    x: u16,
}

impl Cursor {
    fn new(area: Rect, row: u16) -> Self {
        Self {
            line: Rect {
                y: area.y + row,
                height: 1,
                ..area
            },
            x: area.x,
        }
    }

    fn put(&mut self, buffer: &mut Buffer, text: &str, style: Style) {
        let room = usize::from(self.line.right().saturating_sub(self.x));
        if room > 0 {
            // Wide characters take two columns, but the cell keeps its width.
            let width = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
            let room = room.min(usize::from(width));
            buffer.set_stringn(self.x, self.line.y, text, room, style);
            self.skip(width);
        }
    }

    fn skip(&mut self, columns: u16) {
        self.x = self.x.saturating_add(columns).min(self.line.right());
    }
}

fn empty(asked: bool, palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    if !asked {
        return;
    }
    let lines = [
        Line::from("No guests are running."),
        Line::from(""),
        Line::from("Start one in another terminal:"),
        Line::styled("ebb run -- sh -c 'sleep 60'", palette.style(Role::Key)),
        Line::from(""),
        Line::styled(
            "It appears here as soon as it runs.",
            palette.style(Role::Quiet),
        ),
    ];
    let height = u16::try_from(lines.len()).unwrap_or(0);
    let top = area.y + area.height.saturating_sub(height) / 2;
    for (y, line) in (top..area.bottom()).zip(lines) {
        let line_area = Rect {
            y,
            height: 1,
            ..area
        };
        frame.render_widget(line.centered(), line_area);
    }
}
