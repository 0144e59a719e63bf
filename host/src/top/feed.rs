//! Asks the guests in the background, so that the screen answers keys whatever the guests do.

use crate::registry::{BlockMap, Body, Fleet, GuestId, Moment, Presence, Request};
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
    pub(super) fn start() -> io::Result<Self> {
        let (wishes, wished) = channel();
        let (sender, seen) = channel();
        thread::Builder::new()
            .name("feed".into())
            .spawn(move || ask(&mut Fleet::new(), &wished, &sender))?;
        Ok(Self { wishes, seen })
    }

    /// Looks at this guest from now on, or at none.
    pub(super) fn focus(&self, id: Option<GuestId>) {
        // If the thread is gone, `seen` says so.
        let _ = self.wishes.send(id);
    }
}

/// Asks until nobody listens.
fn ask(fleet: &mut Fleet, wished: &Receiver<Option<GuestId>>, sender: &Sender<Seen>) {
    let mut focus: Option<Focus> = None;
    loop {
        let guests = fleet.figures();
        if let Some(focus) = &mut focus {
            refresh(fleet, focus);
        }
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

/// Continues the curve and takes the map of now. What cannot be had stays as it was.
fn refresh(fleet: &mut Fleet, focus: &mut Focus) {
    let after_ms = focus.points.last().map(|point| point.at_ms);
    if let Some(Body::History(history)) = fleet.ask(&focus.id, Request::History { after_ms }) {
        let later = |point: &Moment| after_ms.is_none_or(|after| point.at_ms > after);
        focus
            .points
            .extend(history.points.into_iter().filter(later));
        let excess = focus.points.len().saturating_sub(POINTS_MAX);
        focus.points.drain(..excess);
    }
    match fleet.ask(&focus.id, Request::Map) {
        Some(Body::Map(map)) => focus.map = Ok(map),
        Some(Body::Error(why)) => focus.map = Err(crate::registry::harmless(&why)),
        _ => {}
    }
}
