//! Colours and signs: the terminal's own colours, so that they fit its background, and a sign of
//! its own for everything, so that no colour is needed to tell things apart.

use crate::registry::Cell;
use ratatui::style::{Color, Modifier, Style};
use std::env;

/// What something drawn means.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Used,
    Held,
    Returned,
    Partial,
    Huge,
    Pool,
    PoolFree,
    Isolated,
    Reserved,
    Heading,
    Quiet,
    Key,
    Warning,
    Selected,
    Title,
}

/// How things look on this terminal.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Palette {
    pub(super) colour: bool,
    /// The terminal shows block elements.
    pub(super) unicode: bool,
}

impl Palette {
    /// What the environment allows: <https://no-color.org>, and the locale.
    pub(super) fn from_environment() -> Self {
        Self {
            colour: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            unicode: crate::text::Style::from_environment().unicode,
        }
    }

    /// How it is drawn.
    pub(super) fn style(self, role: Role) -> Style {
        let plain = Style::new();
        let modified = match role {
            Role::Heading | Role::Key | Role::Warning => plain.add_modifier(Modifier::BOLD),
            Role::Title => plain.add_modifier(Modifier::BOLD),
            Role::Quiet | Role::Returned | Role::Reserved => plain.add_modifier(Modifier::DIM),
            Role::Selected => plain.add_modifier(Modifier::REVERSED),
            _ => plain,
        };
        if !self.colour {
            return modified;
        }
        match role {
            Role::Used => modified.fg(Color::Blue),
            Role::Held => modified.fg(Color::Yellow),
            Role::Partial => modified.fg(Color::Cyan),
            Role::Huge | Role::Pool => modified.fg(Color::Magenta),
            Role::PoolFree => modified.fg(Color::Green),
            Role::Isolated | Role::Warning => modified.fg(Color::Red),
            Role::Key | Role::Title => modified.fg(Color::Cyan),
            _ => modified,
        }
    }

    /// What kind of thing a pageblock is.
    pub(super) fn role(cell: Cell) -> Role {
        match cell {
            Cell::Returned => Role::Returned,
            Cell::Held => Role::Held,
            Cell::Partial(_) => Role::Partial,
            Cell::Full => Role::Used,
            Cell::Huge => Role::Huge,
            Cell::Pool { free: false } | Cell::Gib { free: false } => Role::Pool,
            Cell::Pool { free: true } | Cell::Gib { free: true } => Role::PoolFree,
            Cell::Isolated | Cell::Moving => Role::Isolated,
            Cell::Reserved => Role::Reserved,
        }
    }

    /// The sign of a pageblock.
    pub(super) fn sign(self, cell: Cell) -> char {
        const LEVELS: [char; 9] = ['▁', '▂', '▂', '▃', '▄', '▅', '▆', '▆', '▇'];
        if !self.unicode {
            return cell.letter();
        }
        match cell {
            Cell::Returned => '·',
            Cell::Held => '░',
            Cell::Partial(level) => LEVELS[usize::from(level.clamp(1, 9)) - 1],
            Cell::Full => '█',
            Cell::Huge => '▓',
            Cell::Pool { .. }
            | Cell::Gib { .. }
            | Cell::Isolated
            | Cell::Moving
            | Cell::Reserved => cell.letter(),
        }
    }

    /// What is in use, in a bar or a curve.
    pub(super) fn solid(self) -> char {
        if self.unicode { '█' } else { '#' }
    }

    /// What is free and still held.
    pub(super) fn light(self) -> char {
        if self.unicode { '░' } else { ':' }
    }
}
