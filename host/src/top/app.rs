//! The state of the screen, and its changes by keys. This module does not use the terminal.

use super::columns::Column;
use super::feed::{Focus, Snapshot};
use crate::registry::{Figures, GuestId, Presence};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::{Duration, Instant};

/// The time for which a guest is shown after its end.
const ENDED_SHOWN: Duration = Duration::from_secs(10);
/// The number of guests that Page Up and Page Down skip.
const PAGE: usize = 10;

/// Whether a guest answers, is silent, or has ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It answers.
    Here,
    /// It exists but does not answer.
    Silent,
    /// It ended at this time.
    Ended(Instant),
}

/// A guest in the list, with the last figures that it sent and its state.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Guest {
    pub(super) id: GuestId,
    /// `None` if it has never answered.
    pub(super) figures: Option<Box<Figures>>,
    pub(super) state: State,
}

/// What the caller must do after a key: nothing, draw the screen again, stop the process as Ctrl-Z
/// does, or end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Nothing,
    Redraw,
    Suspend,
    Quit,
}

/// The state of the screen: the guests, the order of the list, the selection, and the view that is
/// shown.
#[derive(Debug)]
pub(super) struct App {
    /// In the order of the list.
    pub(super) guests: Vec<Guest>,
    /// The column by which the list is sorted.
    pub(super) sort: Column,
    /// Whether the order is reversed.
    pub(super) reverse: bool,
    selected: Option<GuestId>,
    /// Whether one guest is shown instead of the list.
    pub(super) detail: bool,
    /// Whether the help is shown.
    pub(super) help: bool,
    /// The curve and map of the guest that is shown in detail.
    pub(super) focus: Option<Focus>,
    /// Whether the first figures have arrived.
    pub(super) asked: bool,
}

impl App {
    /// Returns the state of an empty list that is sorted by `sort`, before the first figures.
    pub(super) fn new(sort: Column) -> Self {
        Self {
            guests: Vec::new(),
            sort,
            reverse: false,
            selected: None,
            detail: false,
            help: false,
            focus: None,
            asked: false,
        }
    }

    /// Replaces the figures of all guests by those in `seen` and sorts the list. `now` is the
    /// current time. Marks guests that are missing in `seen` as ended, and removes them after 10 s
    /// unless they are shown in detail. If the selected guest is removed, selects the one at its
    /// position and returns to the list.
    pub(super) fn update(&mut self, seen: Snapshot, now: Instant) {
        self.asked = true;
        let looked_at = self.looked_at();
        for guest in &mut self.guests {
            if !seen.guests.contains_key(&guest.id) && !matches!(guest.state, State::Ended(_)) {
                guest.state = State::Ended(now);
            }
        }
        let place = self.place();
        self.guests.retain(|guest| match guest.state {
            State::Ended(at) => {
                guest.figures.is_some()
                    && (now.saturating_duration_since(at) < ENDED_SHOWN
                        || looked_at.as_ref() == Some(&guest.id))
            }
            _ => true,
        });
        for (id, presence) in seen.guests {
            let known = self.guests.iter().position(|guest| guest.id == id);
            let (figures, state) = match presence {
                Presence::Here(figures) => (Some(figures), State::Here),
                Presence::Silent => {
                    let last = known.and_then(|at| self.guests[at].figures.take());
                    (last, State::Silent)
                }
            };
            let guest = Guest { id, figures, state };
            match known {
                Some(at) => self.guests[at] = guest,
                None => self.guests.push(guest),
            }
        }
        self.sort();
        // The selection stays on its guest. If the guest is gone, its position in the list stays
        // selected.
        if self.place().is_none() {
            let at = place.unwrap_or(0).min(self.guests.len().saturating_sub(1));
            self.selected = self.guests.get(at).map(|guest| guest.id.clone());
            self.detail = false;
        }
        if self.detail {
            // A guest that has ended keeps its last curve and map.
            if seen.focus.as_ref().map(|focus| &focus.id) == self.selected.as_ref() {
                let ended = self
                    .selected_guest()
                    .is_some_and(|guest| guest.state != State::Here);
                if !ended || self.focus.is_none() {
                    self.focus = seen.focus;
                }
            }
        } else {
            self.focus = None;
        }
    }

    fn sort(&mut self) {
        let (sort, reverse) = (self.sort, self.reverse);
        self.guests.sort_by(|a, b| match (&a.figures, &b.figures) {
            (Some(a), Some(b)) if reverse => sort.order(b, a),
            (Some(a), Some(b)) => sort.order(a, b),
            // Guests that have never answered come last.
            (a_figures, b_figures) => b_figures
                .is_some()
                .cmp(&a_figures.is_some())
                .then_with(|| a.id.cmp(&b.id)),
        });
    }

    /// Returns the index of the selected guest in `guests`. Returns `None` if no guest is selected
    /// or the selected one is gone.
    pub(super) fn place(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.guests.iter().position(|guest| guest.id == *selected)
    }

    /// Returns the selected guest. Returns `None` if no guest is selected or the selected one is
    /// gone.
    pub(super) fn selected_guest(&self) -> Option<&Guest> {
        self.guests.get(self.place()?)
    }

    /// Returns the identity of the guest that is shown in detail, whose curve and map are needed.
    /// Returns `None` while the list is shown.
    pub(super) fn looked_at(&self) -> Option<GuestId> {
        self.selected.clone().filter(|_| self.detail)
    }

    fn select(&mut self, place: usize) {
        let place = place.min(self.guests.len().saturating_sub(1));
        if let Some(guest) = self.guests.get(place) {
            if self.selected.as_ref() != Some(&guest.id) {
                self.focus = None;
            }
            self.selected = Some(guest.id.clone());
        }
    }

    fn sort_by_next(&mut self, step: usize) {
        let at = Column::ALL.iter().position(|column| *column == self.sort);
        let next = (at.unwrap_or(0) + step) % Column::ALL.len();
        self.sort = Column::ALL[next];
        self.sort();
    }

    /// Handles a key: changes the selection, the order or the view. Returns what the caller must
    /// do. Releases of keys and unknown keys change nothing.
    pub(super) fn key(&mut self, key: KeyEvent) -> Outcome {
        if key.kind == KeyEventKind::Release {
            return Outcome::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let place = self.place().unwrap_or(0);
        match key.code {
            KeyCode::Char('c') if control => return Outcome::Quit,
            KeyCode::Char('z') if control => return Outcome::Suspend,
            KeyCode::Char('l') if control => {}
            KeyCode::Char(_) if control => return Outcome::Nothing,
            KeyCode::Char('q') => return Outcome::Quit,
            // The next key of any kind closes the help.
            _ if self.help => self.help = false,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = true,
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace if self.detail => {
                self.detail = false;
                self.focus = None;
            }
            KeyCode::Esc => return Outcome::Quit,
            KeyCode::Enter | KeyCode::Right if self.selected_guest().is_some() => {
                self.detail = true;
            }
            KeyCode::Up | KeyCode::Char('k') => self.select(place.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(place + 1),
            KeyCode::PageUp => self.select(place.saturating_sub(PAGE)),
            KeyCode::PageDown => self.select(place + PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Char('s') => self.sort_by_next(1),
            KeyCode::Char('S') => self.sort_by_next(Column::ALL.len() - 1),
            KeyCode::Char('r') => {
                self.reverse = !self.reverse;
                self.sort();
            }
            _ => return Outcome::Nothing,
        }
        Outcome::Redraw
    }
}
