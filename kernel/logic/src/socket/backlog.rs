//! The connections that wait at a listener to be accepted. Pure logic.
//!
//! As on Linux, a backlog of `n` has room for `n + 1` connections. Over TCP, connections that
//! arrive at a full backlog wait for their turn: each is established only when one before it was
//! accepted.

use alloc::collections::VecDeque;

/// The connections of type `C` that wait at a listener, the oldest first.
#[derive(Debug)]
pub struct Backlog<C> {
    queue: VecDeque<C>,
    /// Number of the oldest connections that are established. They stay so if the limit falls.
    established: usize,
    limit: usize,
    closed: bool,
}

/// The reason why a connection was not added to a backlog, and the connection itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused<C> {
    /// The listener is closed.
    Closed(C),
    /// The backlog is full.
    Full(C),
    /// Memory for a place is short.
    Memory(C),
}

/// The place that a connection got in the backlog.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The connection can be accepted.
    Established,
    /// The connection waits for its turn.
    Waiting,
}

impl<C> Backlog<C> {
    /// Returns an empty backlog for the `limit` that `listen` was called with.
    pub const fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            established: 0,
            limit,
            closed: false,
        }
    }

    /// Sets the limit to `limit`, which another call of `listen` sets. If that leaves room for a
    /// connection that waits for its turn, establishes the oldest one and returns it. The caller
    /// must call this again until it returns `None`.
    pub fn set_limit(&mut self, limit: usize) -> Option<&C> {
        self.limit = limit;
        self.promote()
    }

    /// Establishes the oldest connection that waits for its turn, if there is room for it, and
    /// returns it. Returns `None` if there is no room or no connection waits.
    fn promote(&mut self) -> Option<&C> {
        if self.established > self.limit {
            return None;
        }
        let promoted = self.queue.get(self.established)?;
        self.established += 1;
        Some(promoted)
    }

    /// Returns the number of connections, including those that wait for their turn.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether there are no connections, so that none can be accepted.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether the backlog has more connections than its limit, so that another one would
    /// have to wait or would be refused.
    pub fn is_full(&self) -> bool {
        self.queue.len() > self.limit
    }

    /// Returns whether the backlog accepts no more connections.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns all connections, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.queue.iter()
    }

    /// Returns the connections that can be accepted, the oldest first.
    pub fn established(&self) -> impl Iterator<Item = &C> {
        self.queue.iter().take(self.established)
    }

    /// Adds `connection`. If the backlog is full, the connection waits for its turn if `may_wait`,
    /// and is refused otherwise. Returns which place it got.
    ///
    /// # Errors
    /// [`Refused`], with the reason and the connection.
    pub fn push(&mut self, connection: C, may_wait: bool) -> Result<Place, Refused<C>> {
        if self.closed {
            return Err(Refused::Closed(connection));
        }
        // Behind connections that wait, also while a longer backlog lets them in one by one.
        let full = self.is_full() || self.established < self.queue.len();
        if full && !may_wait {
            return Err(Refused::Full(connection));
        }
        if self.queue.try_reserve(1).is_err() {
            return Err(Refused::Memory(connection));
        }
        self.queue.push_back(connection);
        if full {
            return Ok(Place::Waiting);
        }
        self.established += 1;
        Ok(Place::Established)
    }

    /// Returns whether a connection for which `is_it` returns `true` waits for its turn.
    pub fn waits(&self, is_it: impl Fn(&C) -> bool) -> bool {
        self.queue.iter().skip(self.established).any(is_it)
    }

    /// Removes the oldest connection and returns it. Returns `None` if there is no connection. Also
    /// returns the connection that is established in its place, or `None` if no connection waits
    /// for its turn.
    pub fn accept(&mut self) -> Option<(C, Option<&C>)> {
        let first = self.queue.pop_front()?;
        self.established -= 1;
        Some((first, self.promote()))
    }

    /// Removes the connection for which `is_it` returns `true`, because the peer gave up, and
    /// returns it. The first value is `None` if there is no such connection. The second value is
    /// the connection that is established in its place, or `None` if there is none.
    pub fn remove(&mut self, is_it: impl Fn(&C) -> bool) -> (Option<C>, Option<&C>) {
        let Some(at) = self.queue.iter().position(is_it) else {
            return (None, None);
        };
        let gone = self.queue.remove(at);
        if at < self.established {
            self.established -= 1;
            return (gone, self.promote());
        }
        (gone, None)
    }

    /// Closes the backlog, so that it accepts no more connections. Removes and returns the
    /// connections in it, which will never be accepted.
    pub fn close(&mut self) -> VecDeque<C> {
        self.closed = true;
        self.established = 0;
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
        // If the limit falls, established connections stay established.
        assert_eq!(backlog.set_limit(1), None);
        assert!(backlog.is_full());
        assert!(!backlog.waits(|c| *c == 2));
        assert_eq!(backlog.established().count(), 3);
        assert_eq!(backlog.accept(), Some((0, None)));
        assert_eq!(backlog.accept(), Some((1, Some(&3))));
        assert_eq!(backlog.set_limit(100), Some(&4));
        assert_eq!(backlog.set_limit(100), None);
        assert!(!backlog.is_full());
        assert_eq!(backlog.set_limit(usize::MAX), None);
        assert_eq!(backlog.set_limit(usize::MAX), None);
    }

    #[test]
    fn a_connection_does_not_pass_those_that_a_longer_backlog_lets_in() {
        let mut backlog = Backlog::new(0);
        for n in 0..4 {
            let _ = backlog.push(n, true);
        }
        assert_eq!(backlog.set_limit(100), Some(&1));
        assert_eq!(backlog.push(4, true), Ok(Place::Waiting));
        for n in 2..5 {
            assert_eq!(backlog.set_limit(100), Some(&n));
        }
        assert_eq!(backlog.set_limit(100), None);
        assert_eq!(backlog.push(5, true), Ok(Place::Established));
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
