//! The terminal of `ebb top`. Its settings are changed at the start and restored at the end, also
//! after an error.

use super::app::{App, Outcome};
use super::columns::Column;
use super::draw;
use super::feed::{Feed, Snapshot};
use super::other_qemu::OtherQemu;
use super::palette::Palette;
use crate::failure::Failure;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// The longest time that new figures wait to be drawn while no key is pressed.
const TICK: Duration = Duration::from_millis(100);

/// Shows the guests on the terminal until the user quits, the terminal is gone, or SIGHUP, SIGINT,
/// SIGQUIT or SIGTERM arrives. `others` are guests that `ebb` did not start. The list is first
/// sorted by `sort`. Restores the terminal at the end, also after an error. Installs signal
/// handlers that stay; a second of these signals ends the process. Fails with [`Failure::Usage`] if
/// stdin or stdout is no terminal, and with [`Failure::Setup`] if the terminal or a thread fails.
pub(super) fn show(sort: Column, others: Vec<OtherQemu>) -> Result<(), Failure> {
    let failed = |source| Failure::Setup {
        what: "the terminal",
        source,
    };
    if !rustix::termios::isatty(rustix::stdio::stdout())
        || !rustix::termios::isatty(rustix::stdio::stdin())
    {
        return Err(Failure::Usage(
            "`ebb top` needs a terminal; `ebb top --once` prints a table, with --json for scripts"
                .into(),
        ));
    }
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        // A second signal ends the process immediately.
        let status = 128 + signal;
        signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&signalled))
            .map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(&signalled)).map_err(failed)?;
    }
    let feed = Feed::start(others).map_err(failed)?;
    // From here on, a panic restores the terminal before it prints.
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let result = run(&mut terminal, &feed, App::new(sort), &signalled);
    let restored = ratatui::try_restore();
    result.and(restored).map_err(failed)
}

fn run(
    terminal: &mut DefaultTerminal,
    feed: &Feed,
    mut app: App,
    signalled: &AtomicBool,
) -> io::Result<()> {
    let palette = Palette::from_environment();
    let mut looked_at = None;
    let mut changed = true;
    let mut more = false;
    // Relaxed: the flag publishes no other data.
    while !signalled.load(Ordering::Relaxed) {
        if let Some(seen) = newest(feed)? {
            app.update(seen, Instant::now());
            changed = true;
        }
        if app.looked_at() != looked_at {
            looked_at = app.looked_at();
            feed.focus(looked_at.clone());
        }
        if changed {
            terminal.draw(|frame| draw::screen(&app, palette, frame))?;
            changed = false;
        }
        // If the event library has already read more keys, there is no wait.
        if hung_up(if more { Duration::ZERO } else { TICK })? {
            return Ok(());
        }
        more = event::poll(Duration::ZERO)?;
        if !more {
            continue;
        }
        match event::read()? {
            Event::Key(key) => match app.key(key) {
                Outcome::Quit => return Ok(()),
                Outcome::Suspend => {
                    suspend(terminal)?;
                    changed = true;
                }
                Outcome::Redraw => changed = true,
                Outcome::Nothing => {}
            },
            Event::Resize(..) => changed = true,
            _ => {}
        }
    }
    Ok(())
}

/// Waits up to `wait` for a key. Returns `true` if the terminal is gone. The library that reads
/// keys must not be called then, because it would retry forever. Fails as poll(2).
fn hung_up(wait: Duration) -> io::Result<bool> {
    let stdin = rustix::stdio::stdin();
    let timeout = Timespec::try_from(wait).map_err(io::Error::other)?;
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        // After a signal, the terminal may have another size.
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(fds[0].revents().intersects(gone))
}

/// Returns the newest figures of the feed, or `None` if none have arrived. Older ones are dropped.
/// Fails if the feed's thread has ended.
fn newest(feed: &Feed) -> io::Result<Option<Snapshot>> {
    let mut newest = None;
    loop {
        match feed.seen.try_recv() {
            Ok(seen) => newest = Some(seen),
            Err(TryRecvError::Empty) => return Ok(newest),
            Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other(
                    "the thread that asks the guests has ended",
                ));
            }
        }
    }
}

/// Handles Ctrl-Z: restores the shell's terminal, stops the process, and takes the terminal over
/// again when the process continues. Fails if the terminal fails.
fn suspend(terminal: &mut DefaultTerminal) -> io::Result<()> {
    ratatui::try_restore()?;
    // This returns when the process is continued.
    signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
    *terminal = ratatui::try_init()?;
    terminal.clear()
}
