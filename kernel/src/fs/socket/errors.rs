//! Errors of packets that a socket asked for (`IP_RECVERR`). Each is queued with the message that
//! caused it, until the program receives it (`MSG_ERRQUEUE`).

use super::address::Address;
use super::inbox::Got;
use super::problems::{MOST, Problem};
use super::state::Socket;
use crate::fs::io::ByteSink;
use crate::fs::poll::PollMask;
use core::sync::atomic::Ordering;
use logic::errno::Errno;
use logic::socket::packet::Told;
use logic::socket::report::Report;

impl Socket {
    /// Returns whether the socket asked for errors of packets of version 4 (`four`) or version 6.
    pub(super) fn wants_errors(&self, four: bool) -> bool {
        let told = self.settings().told.get();
        told.contains(if four { Told::ERRORS4 } else { Told::ERRORS6 })
    }

    /// Sets whether received messages come with the control messages in `told`. Switching error
    /// reports off drops the queued errors.
    pub fn tell(&self, told: Told, on: bool) {
        self.settings().told.set(told, on);
        if !on && told.intersects(Told::ERRORS4 | Told::ERRORS6) {
            let mut list = self.problems.list.lock();
            let dropped = core::mem::take(&mut *list);
            self.problems.any.store(false, Ordering::Release);
            drop(list);
            drop(dropped);
        }
    }

    /// Queues `problem` for the program (`MSG_ERRQUEUE`), and makes the next call on the socket
    /// fail with its error. If the queue is full or memory is short, only the next call reports it.
    pub(super) fn add_problem(&self, problem: Problem) {
        let mut list = self.problems.list.lock();
        if list.len() < MOST && list.try_reserve(1).is_ok() {
            list.push_back(problem);
            self.problems.any.store(true, Ordering::Release);
            drop(list);
        } else {
            drop(list);
            drop(problem);
        }
        self.inbox.set_error(Report::ERROR);
    }

    /// Receives the oldest queued error. Puts the message that caused it into `to`, and returns the
    /// report of the error and the length of the message.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if no error is queued, and with `EFAULT` if `to` is at a bad address.
    pub fn receive_problem(&self, to: &mut dyn ByteSink) -> Result<Got, Errno> {
        let mut list = self.problems.list.lock();
        let problem = list.pop_front();
        let more = !list.is_empty();
        self.problems.any.store(more, Ordering::Release);
        drop(list);
        let problem = problem.ok_or(Errno::EAGAIN)?;
        // The pending error belongs to `problem`. The next call fails with the next queued error.
        self.inbox.take_error();
        if more {
            self.inbox.put_error(Report::ERROR);
            self.notifier.notify(PollMask::ERR);
        }
        let length = problem.segment.payload.len();
        let count = problem.segment.payload.put(0, to, length)?;
        Ok(Got {
            count,
            length,
            source: Some(Address::Inet(problem.report.to)),
            report: Some(problem.report),
            ..Got::default()
        })
    }
}
