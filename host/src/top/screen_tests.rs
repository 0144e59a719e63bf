//! Compares the screens with stored text, at the smallest supported size and at a large one, and
//! tests the keys.

use super::app::{App, Outcome, State};
use super::columns::Column;
use super::draw;
use super::feed::{Focus, Snapshot};
use super::palette::Palette;
use super::tests::figures;
use crate::registry::{BlockMap, Cell, Counts, Figures, GuestId, Moment, Presence, Region};
use crate::text::hostile::{HOSTILE, assert_harmless};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PLAIN: Palette = Palette {
    colour: false,
    unicode: true,
};

fn drawn(app: &App, palette: Palette, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw::screen(app, palette, frame))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Compares the drawn screen with a stored one.
fn assert_screen(app: &App, (width, height): (u16, u16), expected: &str) {
    let text = drawn(app, PLAIN, width, height);
    assert!(text == expected, "the screen is now:\n{text}");
}

#[test]
fn names_of_guests_steer_no_terminal() {
    let mut hostile = figures(HOSTILE, 45 << 20);
    hostile.program = HOSTILE.to_owned();
    let mut app = App::new(Column::Name);
    let found = (id("a"), Presence::Here(Box::new(hostile)));
    let seen = Snapshot {
        guests: BTreeMap::from([found]),
        ..Snapshot::default()
    };
    app.update(seen, Instant::now());
    assert_harmless(&drawn(&app, PLAIN, 100, 24));
}

fn id(name: &str) -> GuestId {
    GuestId::of_test(name)
}

fn here(name: &str, resident: u64) -> (GuestId, Presence) {
    (id(name), Presence::Here(Box::new(figures(name, resident))))
}

/// Returns a map of 4 GiB as guests have it: kernel memory at the top of low memory, a program's
/// memory in use, and fragments of freed memory.
fn map() -> BlockMap {
    let low = format!(
        "x5{}{}{}{}HHHHPpg!m{}xx",
        "#".repeat(300),
        "9876543211".repeat(6),
        "o".repeat(200),
        ".".repeat(600),
        ".".repeat(1536 - 2 - 300 - 60 - 200 - 600 - 9 - 2)
    );
    let high = format!("{}{}", "#".repeat(40), ".".repeat(472));
    let mut counts = Counts::default();
    for letter in low.chars().chain(high.chars()) {
        counts.add(Cell::of(letter));
    }
    BlockMap {
        block_bytes: 2 << 20,
        counts,
        regions: vec![
            Region {
                start: 0,
                blocks: low,
            },
            Region {
                start: 4 << 30,
                blocks: high,
            },
        ],
    }
}

fn focus(name: &str) -> Focus {
    // During this minute, a program took a GiB and gave it back.
    let points = (0..240u64).map(|at| {
        let used = match at {
            0..60 => at * 17,
            60..120 => 1020,
            _ => 40,
        };
        let resident = match at {
            0..120 => used + 6,
            120..150 => 1026 - (at - 120) * 32,
            _ => 48,
        };
        Moment {
            at_ms: at * 250,
            used_bytes: Some(used << 20),
            resident_bytes: resident << 20,
        }
    });
    Focus {
        id: id(name),
        points: points.collect(),
        map: Ok(map()),
    }
}

fn three() -> BTreeMap<GuestId, Presence> {
    BTreeMap::from([
        here("builder", 3 << 29),
        here("idle", 45 << 20),
        here("tests", 700 << 20),
    ])
}

fn app() -> (App, Instant) {
    let mut app = App::new(Column::Resident);
    let now = Instant::now();
    let seen = Snapshot {
        guests: three(),
        focus: None,
    };
    app.update(seen, now);
    (app, now)
}

fn key(app: &mut App, code: KeyCode) -> Outcome {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn names(app: &App) -> Vec<String> {
    let name = |figures: &Figures| figures.name.clone();
    let guests = app.guests.iter();
    guests
        .filter_map(|guest| guest.figures.as_deref().map(name))
        .collect()
}

fn looking_at_builder() -> App {
    let (mut app, now) = app();
    key(&mut app, KeyCode::Enter);
    let seen = Snapshot {
        guests: three(),
        focus: Some(focus("builder")),
    };
    app.update(seen, now);
    app
}

#[test]
fn list() {
    let (mut app, now) = app();
    // One guest ends while it is shown.
    let mut guests = three();
    guests.remove(&id("idle"));
    guests.insert(id("/run/user/1/ebb/9.sock"), Presence::Silent);
    app.update(
        Snapshot {
            guests,
            focus: None,
        },
        now,
    );
    assert_screen(&app, (80, 24), include_str!("screens/list-80x24.txt"));
    assert_screen(&app, (200, 50), include_str!("screens/list-200x50.txt"));
}

#[test]
fn detail() {
    let app = looking_at_builder();
    assert_screen(&app, (80, 24), include_str!("screens/detail-80x24.txt"));
    assert_screen(&app, (200, 50), include_str!("screens/detail-200x50.txt"));
}

#[test]
fn empty() {
    let mut app = App::new(Column::Resident);
    assert!(
        !drawn(&app, PLAIN, 80, 24).contains("No guests"),
        "no guest was asked yet"
    );
    app.update(Snapshot::default(), Instant::now());
    assert_screen(&app, (80, 24), include_str!("screens/empty-80x24.txt"));
}

#[test]
fn help() {
    let (mut app, _) = app();
    key(&mut app, KeyCode::Char('?'));
    assert_screen(&app, (80, 24), include_str!("screens/help-80x24.txt"));
    assert_eq!(key(&mut app, KeyCode::Char('x')), Outcome::Redraw);
    assert!(!app.help);
}

#[test]
fn any_size_will_do() {
    let (mut list, _) = app();
    let details = looking_at_builder();
    for width in (0..24).chain([40, 59, 76, 79, 80, 111, 160, 161, 250]) {
        for height in (0..16).chain([24, 30, 70]) {
            let palette = Palette {
                colour: true,
                unicode: (width + height) % 2 == 0,
            };
            list.help = false;
            drawn(&list, palette, width, height);
            drawn(&details, palette, width, height);
            list.help = true;
            drawn(&list, palette, width, height);
        }
    }
}

#[test]
fn without_utf_8_all_is_ascii() {
    let (list, _) = app();
    let details = looking_at_builder();
    for app in [list, details] {
        let palette = Palette {
            colour: false,
            unicode: false,
        };
        let text = drawn(&app, palette, 120, 30);
        let odd: Vec<char> = text
            .chars()
            .filter(|c| !c.is_ascii() && *c != '…')
            .collect();
        assert!(odd.is_empty(), "{odd:?}");
    }
}

#[test]
fn guests_that_end_are_shown_and_then_gone() {
    let (mut app, now) = app();
    let mut guests = three();
    guests.remove(&id("tests"));
    let seen = Snapshot {
        guests,
        focus: None,
    };
    app.update(seen.clone(), now);
    let state = |app: &App| {
        let found = app.guests.iter().find(|guest| guest.id == id("tests"));
        found.map(|guest| guest.state)
    };
    assert_eq!(state(&app), Some(State::Ended(now)));
    assert!(drawn(&app, PLAIN, 80, 24).contains("(ended)"));
    app.update(seen.clone(), now + Duration::from_secs(9));
    assert_eq!(state(&app), Some(State::Ended(now)));
    app.update(seen, now + Duration::from_secs(10));
    assert_eq!(state(&app), None);
}

#[test]
fn a_guest_that_ends_while_looked_at_keeps_its_curve() {
    let mut app = looking_at_builder();
    let now = Instant::now();
    let mut guests = three();
    guests.remove(&id("builder"));
    let emptied = Focus {
        points: Vec::new(),
        map: Err("gone".into()),
        ..focus("builder")
    };
    let seen = Snapshot {
        guests,
        focus: Some(emptied),
    };
    app.update(seen.clone(), now);
    app.update(seen.clone(), now + Duration::from_secs(60));
    let text = drawn(&app, PLAIN, 80, 24);
    assert!(text.contains("ended after 3m 05s"), "{text}");
    assert!(text.contains("Map: 2048 blocks"), "{text}");
    // After the view is left, the guest is gone, and the selection is on the guest at its position.
    key(&mut app, KeyCode::Esc);
    app.update(seen, now + Duration::from_secs(61));
    assert_eq!(names(&app), ["tests", "idle"]);
    assert_eq!(app.place(), Some(0));
}

#[test]
fn keys_select_sort_and_end() {
    let (mut app, _) = app();
    assert_eq!(names(&app), ["builder", "tests", "idle"]);
    assert_eq!(app.place(), Some(0));
    key(&mut app, KeyCode::Down);
    key(&mut app, KeyCode::Char('j'));
    key(&mut app, KeyCode::Down);
    assert_eq!(app.place(), Some(2), "the end holds");
    // The selection stays on its guest.
    assert_eq!(key(&mut app, KeyCode::Char('r')), Outcome::Redraw);
    assert_eq!(names(&app), ["idle", "tests", "builder"]);
    assert_eq!(app.place(), Some(0));
    key(&mut app, KeyCode::Char('r'));
    for _ in 0..Column::ALL.len() {
        key(&mut app, KeyCode::Char('s'));
    }
    assert_eq!(app.sort, Column::Resident);
    key(&mut app, KeyCode::Char('S'));
    assert_eq!(app.sort, Column::Balloon);
    assert_eq!(app.looked_at(), None);
    key(&mut app, KeyCode::Enter);
    assert_eq!(app.looked_at(), Some(id("idle")));
    key(&mut app, KeyCode::Esc);
    assert_eq!(app.looked_at(), None);
    assert_eq!(key(&mut app, KeyCode::Char('x')), Outcome::Nothing);
    assert_eq!(key(&mut app, KeyCode::Char('q')), Outcome::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.key(control_c), Outcome::Quit);
}

#[test]
fn a_balloon_and_reserved_memory_have_rows_where_there_are_any() {
    let mut stock = figures("stock", 1 << 30);
    stock.balloon_bytes = Some(200 << 20);
    stock.reserved_bytes = Some(61 << 20);
    let rows = |figures: Figures| {
        let mut app = App::new(Column::Name);
        let found = (id("stock"), Presence::Here(Box::new(figures)));
        let seen = Snapshot {
            guests: BTreeMap::from([found]),
            ..Snapshot::default()
        };
        app.update(seen, Instant::now());
        key(&mut app, KeyCode::Enter);
        drawn(&app, PLAIN, 80, 24)
    };
    let text = rows(stock.clone());
    for row in [
        "balloon        200.0 MiB",
        "reserved        61.0 MiB",
        "faults            120 /s",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
    (stock.balloon_bytes, stock.reserved_bytes) = (Some(0), None);
    let text = rows(stock);
    assert!(
        !text.contains("balloon") && !text.contains("reserved"),
        "{text}"
    );
}

#[test]
fn nothing_is_coloured_where_no_colour_is_wanted() {
    let app = looking_at_builder();
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    terminal
        .draw(|frame| draw::screen(&app, PLAIN, frame))
        .unwrap();
    let reset = ratatui::style::Color::Reset;
    let cells = terminal.backend().buffer().content();
    assert!(
        cells
            .iter()
            .all(|cell| cell.fg == reset && cell.bg == reset)
    );
}
