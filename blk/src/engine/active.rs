//! A request under way: what its next step is, and what the end of one means.

use crate::failure::Failure;
use crate::io::{Operation, Route};
use crate::pool::Batch;
use crate::request::{Door, HostSlice, Op, Payload, Range, Status};

/// Times that the kernel may say "again" to a request.
const MAX_RETRIES: u8 = 64;

#[derive(Debug)]
pub(super) struct Active<D: Door> {
    pub(super) ticket: D::Ticket,
    pub(super) op: Op,
    pub(super) payload: D::Payload,
    /// Bytes that are done; for ranges, how many of them.
    pub(super) done: u64,
    retries: u8,
    /// What the step under way uses. The kernel reads the slices: they must not move.
    pub(super) batch: Option<Batch>,
    pub(super) slices: Vec<HostSlice>,
    pub(super) step_bytes: u64,
}

/// What a request does next.
pub(super) enum Next {
    /// It moves bytes, from or to this byte of the image on, and takes memory for them.
    Move(u64),
    /// This, which takes none.
    Plain(Operation),
    /// Nothing more.
    Finished(Status),
}

/// What the result of a step means.
pub(super) enum Verdict {
    /// So many bytes were read, and are to be handed over.
    Arrived(u64),
    /// So many bytes are done with it, and there may be one more step.
    On(u64),
    /// It was the last.
    Over(Status),
}

impl<D: Door> Active<D> {
    /// A request of which nothing is done; `slices` is room for its steps.
    pub(super) fn new(
        ticket: D::Ticket,
        op: Op,
        payload: D::Payload,
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

    pub(super) fn next(&self) -> Next {
        match &self.op {
            Op::Read(start) | Op::Write(start) => {
                if self.done == self.payload.bytes() {
                    return Next::Finished(Status::Ok);
                }
                Next::Move(start + self.done)
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

    /// The operation that moves the bytes of a step for which memory was found.
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

    /// Whether its step writes what is to be copied first.
    pub(super) fn wants_bytes(&self) -> bool {
        self.batch.is_some() && matches!(self.op, Op::Write(_))
    }

    /// Takes the result of a step into account.
    pub(super) fn judge(&mut self, result: i32) -> Verdict {
        match self.refused(result) {
            Some(Some(status)) => return Verdict::Over(status),
            Some(None) => return Verdict::On(0),
            None => self.retries = 0,
        }
        match &self.op {
            Op::Read(_) | Op::Write(_) => {
                let bytes = u64::try_from(result).unwrap_or(0).min(self.step_bytes);
                // The image ends before the disk does: somebody cut it.
                if bytes == 0 {
                    return Verdict::Over(Status::IoError);
                }
                if self.batch.is_some() && matches!(self.op, Op::Read(_)) {
                    return Verdict::Arrived(bytes);
                }
                self.done += bytes;
                Verdict::On(bytes)
            }
            _ => {
                self.done += 1;
                Verdict::On(0)
            }
        }
    }

    /// What the image did not do, by the result of a step; of what the image never sees, nothing.
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

    /// The one of `ranges` that is next.
    fn range<'a>(&self, ranges: &'a [Range]) -> Option<&'a Range> {
        ranges.get(usize::try_from(self.done).ok()?)
    }

    /// What to do about a result that is an error: `None` if it is none, else a status, or
    /// `Some(None)` to try again.
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
            // A file system that cannot zero in place can often punch, which reads as zeroes too.
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
