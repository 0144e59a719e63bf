//! A request under way: its next step, and the meaning of a step's result.

use crate::failure::Failure;
use crate::io::{Operation, Route};
use crate::pool::Batch;
use crate::request::{HostSlice, Op, Payload, Range, Status, Transport};

/// Number of times in a row that a step is repeated after EAGAIN or EINTR.
const MAX_RETRIES: u8 = 64;

/// A request that was taken and is not answered yet, with the memory of its current step.
#[derive(Debug)]
pub(super) struct Active<T: Transport> {
    pub(super) ticket: T::Ticket,
    pub(super) op: Op,
    pub(super) payload: T::Payload,
    /// Bytes transferred so far. For requests with ranges: number of ranges done.
    pub(super) done: u64,
    retries: u8,
    /// The pages of the pool that the step uses. `None` for a step in place.
    pub(super) batch: Option<Batch>,
    /// The memory of the step. The kernel reads this array during the step, so it must not move.
    pub(super) slices: Vec<HostSlice>,
    /// Number of bytes in `slices`.
    pub(super) step_bytes: u64,
}

/// The next step of a request, as [`Active::next`] decides it.
pub(super) enum Next {
    /// Transfers data, starting at this byte of the image. It needs memory.
    Transfer(u64),
    /// An operation without data.
    Plain(Operation),
    /// None: the request is complete.
    Finished(Status),
}

/// The consequence of a step's result for its request.
pub(super) enum StepResult {
    /// This many bytes were read into pages of the pool and must be copied to the guest.
    CopyToGuest(u64),
    /// The step transferred this many bytes, and there may be another step.
    Continue(u64),
    /// The request is complete.
    Done(Status),
}

impl<T: Transport> Active<T> {
    /// Makes a request with no byte done. `ticket` identifies it to the transport, and `payload` is
    /// its guest memory. `slices` is an empty buffer for the memory of its steps.
    pub(super) fn new(
        ticket: T::Ticket,
        op: Op,
        payload: T::Payload,
        slices: Vec<HostSlice>,
    ) -> Self {
        Self {
            ticket,
            op,
            payload,
            done: 0,
            retries: 0,
            batch: None,
            slices,
            step_bytes: 0,
        }
    }

    /// Returns the step that follows after `done` bytes or ranges. Does not change the request.
    /// [`Op::GetId`] has no steps and gets [`Status::Unsupported`].
    pub(super) fn next(&self) -> Next {
        match &self.op {
            Op::Read(start) | Op::Write(start) => {
                if self.done == self.payload.bytes() {
                    return Next::Finished(Status::Ok);
                }
                Next::Transfer(start + self.done)
            }
            Op::Flush if self.done > 0 => Next::Finished(Status::Ok),
            Op::Flush => Next::Plain(Operation::Flush),
            Op::Discard(ranges) | Op::WriteZeroes(ranges) => {
                let Some(range) = self.range(ranges) else {
                    return Next::Finished(Status::Ok);
                };
                let punch = range.unmap || matches!(self.op, Op::Discard(_));
                let how = if punch {
                    libc::FALLOC_FL_PUNCH_HOLE
                } else {
                    libc::FALLOC_FL_ZERO_RANGE
                };
                Next::Plain(Operation::Allocate {
                    mode: how | libc::FALLOC_FL_KEEP_SIZE,
                    offset: range.offset,
                    bytes: range.bytes,
                })
            }
            Op::GetId => Next::Finished(Status::Unsupported),
        }
    }

    /// Returns the operation of a transfer step, whose memory is in `slices`: a write for write
    /// requests, else a read. Does not start it. `route` is the descriptor to use and `offset` the
    /// first byte in the image. With `durable`, a write is durable when it completes.
    pub(super) fn transfer(&self, route: Route, offset: u64, durable: bool) -> Operation {
        let slices = self.slices.as_ptr();
        let count = u32::try_from(self.slices.len()).unwrap_or(0);
        if matches!(self.op, Op::Write(_)) {
            Operation::Write {
                route,
                slices,
                count,
                offset,
                durable,
            }
        } else {
            Operation::Read {
                route,
                slices,
                count,
                offset,
            }
        }
    }

    /// Returns whether the step is a write through pages of the pool. The guest's data must be
    /// copied into these pages before the operation starts.
    pub(super) fn wants_bytes(&self) -> bool {
        self.batch.is_some() && matches!(self.op, Op::Write(_))
    }

    /// Processes the result of a step: a number of bytes, or a negative error number. Counts the
    /// bytes as done, except those that must still be copied to the guest. After `EAGAIN` and
    /// `EINTR` the step is repeated, up to 64 times in a row. A write-zeroes that the file system
    /// does not support is repeated as a punched hole.
    pub(super) fn process_result(&mut self, result: i32) -> StepResult {
        match self.refused(result) {
            Some(Some(status)) => return StepResult::Done(status),
            Some(None) => return StepResult::Continue(0),
            None => self.retries = 0,
        }
        match &self.op {
            Op::Read(_) | Op::Write(_) => {
                let bytes = u64::try_from(result).unwrap_or(0).min(self.step_bytes);
                // No bytes: the image is shorter than the disk, because it was truncated.
                if bytes == 0 {
                    return StepResult::Done(Status::IoError);
                }
                if self.batch.is_some() && matches!(self.op, Op::Read(_)) {
                    return StepResult::CopyToGuest(bytes);
                }
                self.done += bytes;
                StepResult::Continue(bytes)
            }
            _ => {
                self.done += 1;
                StepResult::Continue(0)
            }
        }
    }

    /// Describes the failure of the current step with `result`, a negative error number, or 0 if
    /// the image has ended. Returns `None` for [`Op::GetId`], which does not use the image.
    pub(super) fn failure(&self, result: i32) -> Option<Failure> {
        let at = |ranges: &[Range]| self.range(ranges).map_or(0, |range| range.offset);
        let (what, offset) = match &self.op {
            Op::Read(start) => ("a read", start + self.done),
            Op::Write(start) => ("a write", start + self.done),
            Op::Flush => ("a flush", 0),
            Op::Discard(ranges) => ("a discard", at(ranges)),
            Op::WriteZeroes(ranges) => ("a write of zeroes", at(ranges)),
            Op::GetId => return None,
        };
        Some(Failure {
            what,
            offset,
            errno: result.min(0).abs(),
        })
    }

    /// Returns the next range to process, or `None` if all are done.
    fn range<'a>(&self, ranges: &'a [Range]) -> Option<&'a Range> {
        ranges.get(usize::try_from(self.done).ok()?)
    }

    /// Decides what follows from `result`. Returns `None` if it is no error, `Some(None)` if the
    /// step must be repeated, and the status of the request otherwise.
    fn refused(&mut self, result: i32) -> Option<Option<Status>> {
        let error = match result {
            0.. => return None,
            error => -error,
        };
        if matches!(error, libc::EAGAIN | libc::EINTR) && self.retries < MAX_RETRIES {
            self.retries += 1;
            return Some(None);
        }
        if error == libc::EOPNOTSUPP {
            // A file system that cannot zero a range can often punch a hole, which reads as zeroes
            // too.
            if let Op::WriteZeroes(ranges) = &mut self.op
                && let Some(range) = usize::try_from(self.done)
                    .ok()
                    .and_then(|i| ranges.get_mut(i))
                && !range.unmap
            {
                range.unmap = true;
                return Some(None);
            }
            return Some(Some(Status::Unsupported));
        }
        Some(Some(Status::IoError))
    }
}
