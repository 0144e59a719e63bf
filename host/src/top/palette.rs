//! Colours and signs of the screen. Colours are the terminal's own, so they fit its background.
//! Everything has a sign of its own, so no colour is needed to tell things apart.

use crate::registry::Cell;
use ratatui::style::{Color, Modifier, Style};
use std::env;

/// The meaning of an item on the screen, which determines its colour and emphasis.
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

/// The colours and signs that the terminal can show.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Palette {
    /// Whether colours are used.
    pub(super) colour: bool,
    /// Whether the terminal shows Unicode's block elements.
    pub(super) unicode: bool,
}

impl Palette {
    /// Returns the palette for the environment: no colour if `NO_COLOR` is set and not empty
    /// (<https://no-color.org>), and Unicode if the locale names UTF-8.
    pub(super) fn from_environment() -> Self {
        Self {
            colour: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            unicode: crate::text::Style::from_environment().unicode,
        }
    }

    /// Returns the style of items with this role: a colour, if colours are used, and bold, dim or
    /// reversed text.
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

    /// Returns the role of a pageblock with the use `cell` on the map.
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

    /// Returns the character for a pageblock with the use `cell` on the map: a block element, or
    /// without Unicode the letter of the protocol.
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

    /// Returns the character for memory in use, in a bar or a curve.
    pub(super) fn solid(self) -> char {
        if self.unicode { '█' } else { '#' }
    }

    /// Returns the character for memory that is free in the guest and resident on the host, in a
    /// bar or a curve.
    pub(super) fn light(self) -> char {
        if self.unicode { '░' } else { ':' }
    }
}
