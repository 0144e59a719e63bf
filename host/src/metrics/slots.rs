//! The slots for connections of `ebb metrics`. If all are in use, a new connection may take the
//! slot of one that only waits.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of connections that are served at a time.
pub(super) const CONNECTIONS_MAX: usize = 8;

/// The state of the thread that serves a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It waits for the rest of the request.
    Reading,
    /// It prepares the answer.
    Working,
    /// It waits until the client has received the answer.
    Sending,
}

#[derive(Debug)]
/// A connection that has a slot.
struct Slot {
    number: u64,
    stream: Arc<TcpStream>,
    /// Whether the client must send a token.
    stranger: bool,
    stage: Stage,
}

#[derive(Debug, Default)]
struct State {
    /// The connections, the oldest first.
    slots: Vec<Slot>,
    /// The number of the next connection.
    next: u64,
}

/// The slots of all connections that are served. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<State>>);

impl Slots {
    /// Takes a slot for the new connection `stream`, whose state is [`Stage::Reading`]. `stranger`
    /// says that its client must send a token.
    ///
    /// If all slots are in use, one connection is closed: the one that has waited longest for a
    /// request, else the one that has waited longest for its answer to be received. Connections of
    /// strangers are closed first, and a stranger never displaces another client. Returns `None` if
    /// no connection can be closed.
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
            // Its thread notices the closed connection.
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

/// The slot of one connection, which is freed when this is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    slots: Slots,
    number: u64,
}

impl Ticket {
    /// Records that the connection is in the state `stage`. Returns `false` if its slot was given
    /// to another connection, which means that it is closed.
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
