//! The view of one guest: its figures, its curve, and the map of its memory.

use super::amount::{Rate, Seconds, UNKNOWN};
use super::app::{Guest, State};
use super::blocks::{Blocks, Grid, legend};
use super::columns::{padded, returned, whole_seconds};
use super::curve::Curve;
use super::feed::Focus;
use super::margin::inside;
use super::palette::{Palette, Role};
use crate::registry::{BlockMap, Figures, Life, harmless};
use crate::text::{Rounded, Size};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The width of the figures in columns.
const FIGURES_WIDTH: u16 = 31;
/// The largest height of the curve in lines.
const CURVE_HEIGHT_MAX: u16 = 20;
/// The smallest width in columns at which the legend is to the right of the map.
const LEGEND_BESIDE_FROM: u16 = 160;
const LEGEND_WIDTH: u16 = 28;

/// Draws the view of one guest into `area`: its figures, curve and map. `focus` has the curve and
/// the map, and without it only the figures are drawn. If the guest has never answered, draws only
/// a line that says so.
pub(super) fn draw(
    guest: &Guest,
    focus: Option<&Focus>,
    palette: Palette,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let Some(figures) = &guest.figures else {
        let text = format!(" {} does not answer", guest.id);
        frame.render_widget(Line::styled(text, palette.style(Role::Warning)), area);
        return;
    };
    let rows = figure_rows(figures);
    let least = u16::try_from(rows.len() + 1).unwrap_or(CURVE_HEIGHT_MAX);
    let upper = (area.height * 2 / 5).clamp(least.min(CURVE_HEIGHT_MAX), CURVE_HEIGHT_MAX);
    let heights = [
        Constraint::Length(1),
        Constraint::Length(upper),
        Constraint::Min(0),
    ];
    let [title, upper, lower] = inside(area, 1, 0).layout(&Layout::vertical(heights));
    frame.render_widget(heading(guest, figures, palette, title.width), title);
    let columns = [Constraint::Length(FIGURES_WIDTH), Constraint::Min(0)];
    let [left, right] = upper.layout(&Layout::horizontal(columns));
    let ended = matches!(guest.state, State::Ended(_));
    draw_figures(figures, rows, palette, frame, left);
    match focus {
        Some(focus) if !(ended && focus.points.is_empty()) => {
            let curve = Curve {
                points: &focus.points,
                reserved: figures.reserved_bytes.unwrap_or(0),
                palette,
                ended,
            };
            frame.render_widget(curve, right);
            draw_map(&focus.map, &figures.host_pages, palette, frame, lower);
        }
        _ if ended => {
            let line = "It ended before its curve and its map were looked at.";
            let line = Line::styled(line, palette.style(Role::Quiet));
            frame.render_widget(
                line,
                Rect {
                    height: lower.height.min(1),
                    ..lower
                },
            );
        }
        _ => {}
    }
}

/// Returns the title line with the guest's name, program and state.
fn heading(guest: &Guest, figures: &Figures, palette: Palette, width: u16) -> Line<'static> {
    let up = Seconds(whole_seconds(figures.up_s));
    let (text, role) = match (guest.state, figures.life) {
        (State::Ended(_), _) => (format!("ended after {up}"), Role::Warning),
        (State::Silent, _) => (format!("does not answer, up {up}"), Role::Warning),
        (State::Here, _) if figures.standstill.is_some() => {
            let word = figures.standstill_word().unwrap_or_default();
            (format!("{word}, up {up}"), Role::Warning)
        }
        (State::Here, Life::Booting) => (format!("booting, up {up}"), Role::Quiet),
        (State::Here, Life::Running) => (format!("running, up {up}"), Role::Quiet),
        (State::Here, Life::Exited) => (format!("program ended, up {up}"), Role::Warning),
        (State::Here, Life::Panicked) => (format!("panicked, up {up}"), Role::Warning),
    };
    let room = usize::from(width).saturating_sub(text.chars().count() + 2);
    let name = format!("{}   ", figures.name);
    let name: String = name.chars().take(room).collect();
    let left = room.saturating_sub(name.chars().count());
    Line::from(vec![
        Span::styled(name, palette.style(Role::Heading)),
        Span::raw(padded(&figures.program, left, true)),
        Span::raw("  "),
        Span::styled(text, palette.style(role)),
    ])
}

/// A figure: its name, its value, and the sign of the curve that stands for it.
type FigureRow = (&'static str, String, Option<Role>);

/// Returns the rows of the figures. An empty balloon has none, and neither has reserved memory if
/// there is none.
fn figure_rows(figures: &Figures) -> Vec<FigureRow> {
    let bytes = |bytes: Option<u64>| {
        bytes.map_or_else(|| UNKNOWN.to_owned(), |bytes| Rounded(bytes).to_string())
    };
    let rate = |rate: Option<f64>| {
        rate.map_or_else(|| UNKNOWN.to_owned(), |rate| format!("{} /s", Rate(rate)))
    };
    let mut rows = vec![
        ("memory", bytes(Some(figures.memory_bytes)), None),
        ("used", bytes(figures.used_bytes), Some(Role::Used)),
        ("  files", bytes(figures.page_cache_bytes), None),
    ];
    let others = [
        ("reserved", figures.reserved_bytes, Some(Role::Used)),
        ("balloon", figures.balloon_bytes, None),
    ];
    let others = others.into_iter();
    let others = others.filter(|(_, amount, _)| amount.is_some_and(|amount| amount > 0));
    rows.extend(others.map(|(name, amount, mark)| (name, bytes(amount), mark)));
    rows.extend([
        ("free", bytes(figures.free_bytes), None),
        ("resident", bytes(Some(figures.resident_bytes)), None),
        ("gap", bytes(figures.gap_bytes), Some(Role::Held)),
        ("QEMU", bytes(figures.overhead_bytes), None),
        ("returned", bytes(returned(figures)), None),
        ("reports", rate(figures.reports_per_s), None),
        ("faults", rate(figures.faults_per_s), None),
    ]);
    rows
}

fn draw_figures(
    figures: &Figures,
    rows: Vec<FigureRow>,
    palette: Palette,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    if area.is_empty() {
        return;
    }
    let plural = if figures.cpus == 1 { "" } else { "s" };
    let machine = format!(
        "{} on {}, {} CPU{plural}, {}",
        figures.kernel.name(),
        figures.accel,
        figures.cpus,
        figures.give_back
    );
    let buffer = frame.buffer_mut();
    let width = usize::from(area.width);
    let kills = kills(figures);
    buffer.set_stringn(area.x, area.y, machine, width, palette.style(Role::Quiet));
    let lines = area.bottom() - area.y - 1;
    let rows_end = area.bottom() - u16::from(!kills.is_empty() && lines > 1);
    if rows_end < area.bottom() {
        buffer.set_stringn(area.x, rows_end, kills, width, Style::new());
    }
    for (y, (name, value, mark)) in (area.y + 1..rows_end).zip(rows) {
        buffer.set_stringn(area.x, y, name, width, palette.style(Role::Quiet));
        if width > 26 {
            buffer.set_stringn(area.x + 10, y, format!("{value:>14}"), 14, Style::new());
            if let Some(role) = mark {
                let sign = if role == Role::Used {
                    palette.solid()
                } else {
                    palette.light()
                };
                let sign = sign.to_string();
                buffer.set_string(area.x + 26, y, sign.repeat(2), palette.style(role));
            }
        }
    }
}

/// Returns a line about the processes that the guest's OOM killer ended. It is empty if there are
/// none.
fn kills(figures: &Figures) -> String {
    let Some(kills) = figures.oom_kills.filter(|kills| *kills > 0) else {
        return String::new();
    };
    match figures.oom_last.last() {
        Some(last) => format!(
            "OOM {kills}: {} ({}) {:.1} s {}",
            harmless(&last.name),
            last.pid,
            last.at_s,
            Rounded(last.resident_bytes)
        ),
        None => format!("OOM {kills}"),
    }
}

fn draw_map(
    map: &Result<BlockMap, String>,
    host_pages: &str,
    palette: Palette,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    if area.height < 2 {
        return;
    }
    let map = match map {
        Ok(map) => map,
        Err(why) => {
            let line = Line::styled(format!("No map: {why}."), palette.style(Role::Quiet));
            frame.render_widget(line, Rect { height: 1, ..area });
            return;
        }
    };
    let total = map.cells().count();
    let beside = area.width >= LEGEND_BESIDE_FROM;
    let (cells, legend_area) = if beside {
        // The legend is next to the cells, not at the far end of the line.
        let room = area.width - LEGEND_WIDTH;
        let lines = usize::from(area.height) - 1;
        let width = Grid::new(map, usize::from(room), lines).map_or(room, Grid::columns);
        let columns = [Constraint::Length(width.min(room)), Constraint::Min(0)];
        let [cells, legend_area] = area.layout(&Layout::horizontal(columns));
        (cells, legend_area)
    } else {
        let rows = [Constraint::Min(0), Constraint::Length(1)];
        let [cells, legend_area] = area.layout(&Layout::vertical(rows));
        (cells, legend_area)
    };
    let rows = [Constraint::Length(1), Constraint::Min(0)];
    let [title, cells] = cells.layout(&Layout::vertical(rows));
    let grid = Grid::new(map, usize::from(cells.width), usize::from(cells.height));
    let each = grid.map_or(1, |grid| grid.blocks_a_cell) as u64;
    let pages = match host_pages {
        "" => String::new(),
        known => format!("; {known} pages of the host"),
    };
    let text = format!(
        "Map: {total} blocks of {}, {} a cell{pages}",
        Size(map.block_bytes),
        Size(map.block_bytes.saturating_mul(each))
    );
    frame.render_widget(Line::styled(text, palette.style(Role::Quiet)), title);
    frame.render_widget(Blocks { map, palette }, cells);
    draw_legend(map, beside, palette, frame, legend_area);
}

fn draw_legend(map: &BlockMap, beside: bool, palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    if area.is_empty() {
        return;
    }
    let entries = legend(map);
    let buffer = frame.buffer_mut();
    if beside {
        for (y, (cell, name, count)) in (area.y + 1..area.bottom()).zip(entries) {
            let sign = palette.sign(cell).to_string();
            let style = palette.style(Palette::role(cell));
            buffer.set_string(area.x + 2, y, sign.repeat(2), style);
            buffer.set_string(
                area.x + 5,
                y,
                format!("{name:<11} {count:>8}"),
                Style::new(),
            );
        }
        return;
    }
    let mut x = area.x;
    for (cell, name, count) in entries {
        // Kinds without a pageblock need no explanation.
        if count == 0 {
            continue;
        }
        let text = format!(" {name} {count}  ");
        let width = u16::try_from(text.chars().count() + 1).unwrap_or(u16::MAX);
        if x.saturating_add(width) > area.right().saturating_add(2) {
            break;
        }
        let style = palette.style(Palette::role(cell));
        let room = usize::from(area.right().saturating_sub(x + 1));
        buffer.set_string(x, area.y, palette.sign(cell).to_string(), style);
        buffer.set_stringn(x + 1, area.y, text, room, Style::new());
        x += width;
    }
}
