//! Asks the guests in the background, so that the screen answers keys whatever the guests do.

use super::foreign::{Foreign, Foreigners};
use crate::registry::{BlockMap, Body, Figures, Fleet, GuestId, Moment, Presence, Request};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// How often all guests are asked.
const REFRESH: Duration = Duration::from_millis(1000);
/// How often while one of them is looked at.
const REFRESH_FOCUSED: Duration = Duration::from_millis(500);
/// Points of the curve that are kept; runs keep as many.
const POINTS_MAX: usize = 1200;

/// The guests at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Seen {
    pub(super) guests: BTreeMap<GuestId, Presence>,
    pub(super) focus: Option<Focus>,
}

/// The guest that is looked at.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Focus {
    pub(super) id: GuestId,
    pub(super) points: Vec<Moment>,
    /// The map, or why there is none.
    pub(super) map: Result<BlockMap, String>,
}

/// The thread that asks.
#[derive(Debug)]
pub(super) struct Feed {
    wishes: Sender<Option<GuestId>>,
    pub(super) seen: Receiver<Seen>,
}

impl Feed {
    /// Begins to ask; `others`: guests that are no runs of ours.
    pub(super) fn start(others: Vec<Foreign>) -> io::Result<Self> {
        let (wishes, wished) = channel();
        let (sender, seen) = channel();
        let mut asked = Asked {
            fleet: Fleet::new(),
            others: Foreigners::start(others)?,
        };
        thread::Builder::new()
            .name("feed".into())
            .spawn(move || ask(&mut asked, &wished, &sender))?;
        Ok(Self { wishes, seen })
    }

    /// Looks at this guest from now on, or at none.
    pub(super) fn focus(&self, id: Option<GuestId>) {
        // If the thread is gone, `seen` says so.
        let _ = self.wishes.send(id);
    }
}

/// Whom the thread asks.
#[derive(Debug)]
struct Asked {
    fleet: Fleet,
    others: Foreigners,
}

/// Asks until nobody listens.
fn ask(asked: &mut Asked, wished: &Receiver<Option<GuestId>>, sender: &Sender<Seen>) {
    let mut focus: Option<Focus> = None;
    loop {
        let mut guests = asked.fleet.figures();
        let mut others = asked.others.figures();
        if let Some(focus) = &mut focus {
            match others.get(&focus.id) {
                Some(Presence::Here(figures)) => follow(figures, focus),
                Some(Presence::Silent) => {}
                None => refresh(&mut asked.fleet, focus),
            }
        }
        guests.append(&mut others);
        let seen = Seen {
            guests,
            focus: focus.clone(),
        };
        if sender.send(seen).is_err() {
            return;
        }
        let pause = match focus {
            Some(_) => REFRESH_FOCUSED,
            None => REFRESH,
        };
        match wished.recv_timeout(pause) {
            Ok(mut id) => {
                // Only the last wish counts.
                while let Ok(later) = wished.try_recv() {
                    id = later;
                }
                focus = id.map(|id| Focus {
                    id,
                    points: Vec::new(),
                    map: Err("asking".to_owned()),
                });
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Continues the curve of a guest that keeps none itself, and has no map.
fn follow(figures: &Figures, focus: &mut Focus) {
    let up = Duration::try_from_secs_f64(figures.up_s).unwrap_or_default();
    let at_ms = u64::try_from(up.as_millis()).unwrap_or(u64::MAX);
    if focus.points.last().is_none_or(|last| last.at_ms < at_ms) {
        focus.points.push(Moment {
            at_ms,
            used_bytes: figures.used_bytes,
            resident_bytes: figures.resident_bytes,
        });
        shorten(&mut focus.points);
    }
    focus.map = Err("a balloon does not tell which memory is in use".to_owned());
}

fn shorten(points: &mut Vec<Moment>) {
    let excess = points.len().saturating_sub(POINTS_MAX);
    points.drain(..excess);
}

/// Continues the curve and takes the map of now. What cannot be had stays as it was.
fn refresh(fleet: &mut Fleet, focus: &mut Focus) {
    let after_ms = focus.points.last().map(|point| point.at_ms);
    if let Some(Body::History(history)) = fleet.ask(&focus.id, Request::History { after_ms }) {
        let later = |point: &Moment| after_ms.is_none_or(|after| point.at_ms > after);
        focus
            .points
            .extend(history.points.into_iter().filter(later));
        shorten(&mut focus.points);
    }
    match fleet.ask(&focus.id, Request::Map) {
        Some(Body::Map(map)) => focus.map = Ok(map),
        Some(Body::Error(why)) => focus.map = Err(crate::registry::harmless(&why)),
        _ => {}
    }
}
