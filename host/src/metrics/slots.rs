//! Places for connections: a few, of which those that only wait are given to new ones.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 8;

/// What the thread of a connection does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Waits for the rest of a request.
    Reading,
    /// Puts the answer together.
    Working,
    /// Waits until the answer is taken.
    Sending,
}

#[derive(Debug)]
struct Slot {
    number: u64,
    stream: Arc<TcpStream>,
    /// It has to show a token.
    stranger: bool,
    stage: Stage,
}

#[derive(Debug, Default)]
struct State {
    /// In order of their beginning.
    slots: Vec<Slot>,
    next: u64,
}

/// All places.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<State>>);

impl Slots {
    /// Takes a place. If all are taken, the connection goes that has waited for a request longest,
    /// else the one that has waited longest for its answer to be taken; strangers first. A stranger
    /// takes no place of others.
    ///
    /// Returns `None` if no connection can go.
    pub(super) fn take(&self, stream: &Arc<TcpStream>, stranger: bool) -> Option<Ticket> {
        let mut state = self.lock();
        if state.slots.len() >= CONNECTIONS_MAX {
            let weight = |slot: &Slot| match slot.stage {
                Stage::Reading => Some(0),
                Stage::Sending => Some(1),
                Stage::Working => None,
            };
            let places = state.slots.iter().enumerate();
            let (place, _) = places
                .filter(|(_, slot)| slot.stranger || !stranger)
                .filter_map(|(place, slot)| {
                    Some((place, (!slot.stranger, weight(slot)?, slot.number)))
                })
                .min_by_key(|(_, order)| *order)?;
            let gone = state.slots.remove(place);
            // Its thread sees the end.
            let _ = gone.stream.shutdown(Shutdown::Both);
        }
        let number = state.next;
        state.next += 1;
        state.slots.push(Slot {
            number,
            stream: Arc::clone(stream),
            stranger,
            stage: Stage::Reading,
        });
        Some(Ticket {
            slots: self.clone(),
            number,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    slots: Slots,
    number: u64,
}

impl Ticket {
    /// Says what the connection does from here on. Returns `false` if another one has its place.
    pub(super) fn set(&self, stage: Stage) -> bool {
        let mut state = self.slots.lock();
        let own = state
            .slots
            .iter_mut()
            .find(|slot| slot.number == self.number);
        own.map(|slot| slot.stage = stage).is_some()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.slots
            .lock()
            .slots
            .retain(|slot| slot.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn stream() -> Arc<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    }

    #[test]
    fn what_waits_longest_goes() {
        let (slots, stream) = (Slots::default(), stream());
        let take = |stranger| slots.take(&stream, stranger);
        let mut tickets: Vec<_> = (0..CONNECTIONS_MAX).map(|_| take(false).unwrap()).collect();
        assert!(tickets[0].set(Stage::Working) && tickets[1].set(Stage::Sending));
        assert!(take(true).is_none(), "a stranger takes no place of others");
        tickets.push(take(false).unwrap());
        assert!(
            !tickets[2].set(Stage::Working),
            "it was the first of those that read"
        );
        assert!(tickets[3].set(Stage::Working));
        for ticket in &tickets[4..] {
            ticket.set(Stage::Working);
        }
        tickets.push(take(false).unwrap());
        assert!(!tickets[1].set(Stage::Working), "none reads, and it sends");
        tickets.last().unwrap().set(Stage::Working);
        assert!(take(false).is_none(), "all work");
        drop(tickets.pop());
        assert!(take(true).is_some(), "a place is free");
    }

    #[test]
    fn strangers_go_first() {
        let (slots, stream) = (Slots::default(), stream());
        let own = slots.take(&stream, false).unwrap();
        let strangers: Vec<_> = (0..100).filter_map(|_| slots.take(&stream, true)).collect();
        assert!(own.set(Stage::Reading));
        assert_eq!(slots.lock().slots.len(), CONNECTIONS_MAX);
        strangers.last().unwrap().set(Stage::Sending);
        let more: Vec<_> = (1..CONNECTIONS_MAX)
            .map(|_| slots.take(&stream, false).unwrap())
            .collect();
        assert!(own.set(Stage::Reading) && more.iter().all(|ticket| ticket.set(Stage::Reading)));
        assert!(strangers.iter().all(|ticket| !ticket.set(Stage::Reading)));
    }
}
