//! The layout of the screen: a summary line at the top, the list or one guest, the keys at the
//! bottom.

use super::amount::{Bytes, UNKNOWN};
use super::app::{App, State};
use super::palette::{Palette, Role};
use super::{detail, help, list};
use crate::registry::Figures;
use crate::text::steers;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::{Line, Span};

const KEYS_LIST: [(&str, &str); 6] = [
    ("↑↓", "select"),
    ("Enter", "look at it"),
    ("s S", "sort"),
    ("r", "reverse"),
    ("?", "help"),
    ("q", "quit"),
];
const KEYS_DETAIL: [(&str, &str); 4] = [
    ("↑↓", "other guest"),
    ("Esc", "back to the list"),
    ("?", "help"),
    ("q", "quit"),
];

/// Draws the whole screen: the summary line, the view that `app` shows, and the keys. Replaces
/// characters that could control the terminal.
pub(super) fn screen(app: &App, palette: Palette, frame: &mut Frame<'_>) {
    let rows = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, middle, foot] = frame.area().layout(&Layout::vertical(rows));
    frame.render_widget(summary(app, palette), head);
    if app.help {
        help::draw(palette, frame, middle);
    } else if app.detail
        && let Some(guest) = app.selected_guest()
    {
        detail::draw(guest, app.focus.as_ref(), palette, frame, middle);
    } else {
        list::draw(app, palette, frame, middle);
    }
    frame.render_widget(keys(app, palette), foot);
    // Names of guests come from other processes and may contain control characters.
    for cell in &mut frame.buffer_mut().content {
        if cell.symbol().chars().any(steers) {
            cell.set_symbol("\u{fffd}");
        }
    }
}

/// Returns the summary line: the number of guests and the sums of their memory.
fn summary(app: &App, palette: Palette) -> Line<'static> {
    let here = app
        .guests
        .iter()
        .filter(|guest| !matches!(guest.state, State::Ended(_)));
    let figures: Vec<_> = here
        .clone()
        .filter_map(|guest| guest.figures.as_deref())
        .collect();
    let count = here.count();
    let mut spans = vec![
        Span::raw(" "),
        Span::styled("ebb top", palette.style(Role::Title)),
    ];
    if count > 0 {
        let plural = if count == 1 { "" } else { "s" };
        spans.push(Span::raw(format!("   {count} guest{plural}")));
        // If no guest reports a figure, its sum is unknown and not zero.
        let sum = |of: fn(&Figures) -> Option<u64>| {
            let known = figures.iter().filter_map(|figures| of(figures));
            known
                .reduce(u64::saturating_add)
                .map_or_else(|| UNKNOWN.to_owned(), |sum| Bytes(sum).to_string())
        };
        for (name, value) in [
            ("given", sum(|figures| Some(figures.memory_bytes))),
            ("used", sum(|figures| figures.used_bytes)),
            ("resident", sum(|figures| Some(figures.resident_bytes))),
            ("gap", sum(|figures| figures.gap_bytes)),
        ] {
            spans.push(Span::styled(
                format!("   {name} "),
                palette.style(Role::Quiet),
            ));
            spans.push(Span::raw(value));
        }
    }
    Line::from(spans)
}

fn keys(app: &App, palette: Palette) -> Line<'static> {
    let keys: &[(&str, &str)] = match (app.help, app.detail) {
        (true, _) => &[("any key", "back"), ("q", "quit")],
        (false, true) => &KEYS_DETAIL,
        (false, false) => &KEYS_LIST,
    };
    let mut spans = vec![Span::raw(" ")];
    for (key, what) in keys {
        let key = match (*key, palette.unicode) {
            ("↑↓", false) => "Up/Down",
            (key, _) => key,
        };
        spans.push(Span::styled(key.to_owned(), palette.style(Role::Key)));
        spans.push(Span::raw(format!(" {what}   ")));
    }
    Line::from(spans)
}
