//! Queries the guests in a background thread, so that the screen responds to keys even if guests do
//! not answer.

use super::other_qemu::{OtherQemu, OtherQemus};
use crate::registry::{BlockMap, Body, Figures, Fleet, GuestId, Moment, Presence, Request};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// The interval between queries of all guests.
const REFRESH: Duration = Duration::from_millis(1000);
/// The interval while one guest is shown in detail.
const REFRESH_FOCUSED: Duration = Duration::from_millis(500);
/// The largest number of points of the curve. Runs keep the same number.
const POINTS_MAX: usize = 1200;

/// The figures of all guests of one round of queries.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) guests: BTreeMap<GuestId, Presence>,
    /// The curve and map of the guest that is shown in detail, if there is one.
    pub(super) focus: Option<Focus>,
}

/// The curve and the map of the guest that is shown in detail.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Focus {
    pub(super) id: GuestId,
    /// The curve, in order of time.
    pub(super) points: Vec<Moment>,
    /// The map, or the reason why there is none.
    pub(super) map: Result<BlockMap, String>,
}

/// A background thread that queries the guests, and the channels to it. The thread ends some time
/// after this is dropped.
#[derive(Debug)]
pub(super) struct Feed {
    wishes: Sender<Option<GuestId>>,
    /// The receiver of the figures. It is disconnected once the thread ends.
    pub(super) seen: Receiver<Snapshot>,
}

impl Feed {
    /// Starts the thread, which queries all guests of this user and those in `others`, which `ebb`
    /// did not start, once a second. Fails if the host cannot create a thread.
    pub(super) fn start(others: Vec<OtherQemu>) -> io::Result<Self> {
        let (wishes, wished) = channel();
        let (sender, seen) = channel();
        let mut asked = QueriedGuests {
            fleet: Fleet::new(),
            others: OtherQemus::start(others)?,
        };
        thread::Builder::new()
            .name("feed".into())
            .spawn(move || ask(&mut asked, &wished, &sender))?;
        Ok(Self { wishes, seen })
    }

    /// Selects the guest whose curve and map are queried from now on, twice a second; `None`
    /// selects no guest. Wakes the thread. Earlier curves are forgotten. Does nothing if the thread
    /// has ended.
    pub(super) fn focus(&self, id: Option<GuestId>) {
        // If the thread has ended, `seen` reports that.
        let _ = self.wishes.send(id);
    }
}

/// The guests that the thread queries.
#[derive(Debug)]
struct QueriedGuests {
    fleet: Fleet,
    others: OtherQemus,
}

/// Queries the guests until the receiver of the figures is dropped.
fn ask(asked: &mut QueriedGuests, wished: &Receiver<Option<GuestId>>, sender: &Sender<Snapshot>) {
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
        let seen = Snapshot {
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
                // Only the last selection counts.
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

/// Adds the current figures to the curve of a guest that keeps no curve itself. Such a guest has no
/// map.
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

/// Adds new points to the curve and replaces the map. If the guest does not answer, they stay
/// unchanged.
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
