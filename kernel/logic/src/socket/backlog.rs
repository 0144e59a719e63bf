//! The connections that wait at a listener to be accepted: pure logic.
//!
//! As on Linux a backlog of `n` has room for `n + 1`. Over TCP those that come when it is full wait
//! for their turn: they are not connected until one in front of them was accepted.

use alloc::collections::VecDeque;

/// Connections of type `C`, the oldest first.
#[derive(Debug)]
pub struct Backlog<C> {
    queue: VecDeque<C>,
    limit: usize,
    closed: bool,
}

/// Why a connection was not taken; it is given back.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused<C> {
    /// The listener is gone.
    Closed(C),
    /// The backlog is full.
    Full(C),
    /// Memory for a place is short.
    Memory(C),
}

/// Whether a connection is established.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It can be accepted.
    Established,
    /// It waits for its turn.
    Waiting,
}

impl<C> Backlog<C> {
    /// An empty one for a backlog of `limit`.
    pub const fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            limit,
            closed: false,
        }
    }

    /// A step on the way of another `listen` to another backlog; gives the next connection whose
    /// turn has come by it. With none it is there.
    pub fn set_limit(&mut self, limit: usize) -> Option<&C> {
        let next = self.limit.saturating_add(1);
        if next <= limit && next < self.queue.len() {
            self.limit = next;
            return self.queue.get(next);
        }
        self.limit = limit;
        None
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing can be accepted.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a further connection would have to wait.
    pub fn is_full(&self) -> bool {
        self.queue.len() > self.limit
    }

    /// Whether it takes no connections any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// All that wait.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.queue.iter()
    }

    /// Those that can be accepted.
    pub fn established(&self) -> impl Iterator<Item = &C> {
        self.queue.iter().take(self.limit.saturating_add(1))
    }

    /// Adds a connection; where it `may_wait` it does so when the backlog is full.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn push(&mut self, connection: C, may_wait: bool) -> Result<Place, Refused<C>> {
        if self.closed {
            return Err(Refused::Closed(connection));
        }
        let full = self.is_full();
        if full && !may_wait {
            return Err(Refused::Full(connection));
        }
        if self.queue.try_reserve(1).is_err() {
            return Err(Refused::Memory(connection));
        }
        self.queue.push_back(connection);
        Ok(if full {
            Place::Waiting
        } else {
            Place::Established
        })
    }

    /// Whether a connection waits for its turn.
    pub fn waits(&self, is_it: impl Fn(&C) -> bool) -> bool {
        self.queue
            .iter()
            .skip(self.limit.saturating_add(1))
            .any(is_it)
    }

    /// Takes the oldest connection out. The second is that whose turn has come by it.
    pub fn accept(&mut self) -> Option<(C, Option<&C>)> {
        let first = self.queue.pop_front()?;
        Some((first, self.queue.get(self.limit)))
    }

    /// Takes out a connection that gave up; says which one's turn has come by it.
    pub fn remove(&mut self, is_it: impl Fn(&C) -> bool) -> (Option<C>, Option<&C>) {
        let Some(at) = self.queue.iter().position(is_it) else {
            return (None, None);
        };
        let gone = self.queue.remove(at);
        let promoted = if at <= self.limit {
            self.queue.get(self.limit)
        } else {
            None
        };
        (gone, promoted)
    }

    /// Takes no more connections; gives those that nobody will accept.
    pub fn close(&mut self) -> VecDeque<C> {
        self.closed = true;
        core::mem::take(&mut self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn a_backlog_of_one_holds_two() {
        let mut backlog = Backlog::new(1);
        assert_eq!(backlog.push(1, false), Ok(Place::Established));
        assert_eq!(backlog.push(2, false), Ok(Place::Established));
        assert_eq!(backlog.push(3, false), Err(Refused::Full(3)));
        assert_eq!(backlog.push(3, true), Ok(Place::Waiting));
        assert_eq!(backlog.push(4, true), Ok(Place::Waiting));
        assert_eq!(backlog.accept(), Some((1, Some(&3))));
        assert_eq!(backlog.remove(|c| *c == 4), (Some(4), None));
        assert_eq!(backlog.remove(|c| *c == 4), (None, None));
        assert_eq!(backlog.accept(), Some((2, None)));
        assert_eq!(backlog.close().into_iter().collect::<Vec<_>>(), [3]);
        assert_eq!(backlog.push(5, true), Err(Refused::Closed(5)));
        assert!(backlog.accept().is_none());
    }

    #[test]
    fn a_longer_backlog_lets_more_in() {
        let mut backlog = Backlog::new(0);
        for n in 0..5 {
            let _ = backlog.push(n, true);
        }
        assert_eq!(backlog.len(), 5);
        assert_eq!(backlog.set_limit(2), Some(&1));
        assert!(!backlog.waits(|c| *c == 1));
        assert!(backlog.waits(|c| *c == 2));
        assert_eq!(backlog.set_limit(2), Some(&2));
        assert_eq!(backlog.set_limit(2), None);
        assert!(!backlog.waits(|c| *c == 2));
        assert_eq!(backlog.set_limit(1), None);
        assert!(backlog.is_full());
        assert_eq!(backlog.set_limit(100), Some(&2));
        assert_eq!(backlog.set_limit(100), Some(&3));
        assert_eq!(backlog.set_limit(100), Some(&4));
        assert_eq!(backlog.set_limit(100), None);
        assert!(!backlog.is_full());
        assert_eq!(backlog.set_limit(usize::MAX), None);
        assert_eq!(backlog.set_limit(usize::MAX), None);
    }

    #[test]
    fn only_a_full_backlog_calls_itself_full() {
        let mut backlog = Backlog::new(2);
        for n in 0..10 {
            let full = backlog.is_full();
            let refused = matches!(backlog.push(n, false), Err(Refused::Full(_)));
            assert_eq!(refused, full);
        }
        assert_eq!(backlog.len(), 3);
    }

    #[test]
    fn who_gives_up_lets_the_next_one_in() {
        let mut backlog = Backlog::new(0);
        for n in 0..3 {
            let _ = backlog.push(n, true);
        }
        assert_eq!(backlog.remove(|c| *c == 0), (Some(0), Some(&1)));
    }
}
