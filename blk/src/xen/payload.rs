//! The guest memory of a request: granted pages, which are mapped or copied by the hypervisor.

use super::grants::{Direction, DomainId, GrantRef, Grants, Transfer};
use super::persistent::MappedPage;
use super::protocol::Segment;
use crate::request::{CopyDirection, CopyRequest, Fault, HostSlice, Payload};
use std::rc::Rc;
use vm_memory::VolatileSlice;

/// The guest memory of one request of a Xen front-end: pages that its domain has granted.
#[derive(Debug)]
pub enum GrantedMemory {
    /// The request has none.
    None,
    /// The pages are mapped while this value lives.
    Mapped {
        /// The mapped memory, in the order of the segments.
        slices: Vec<HostSlice>,
        /// The pages, which keep it mapped.
        held: Vec<MappedPage>,
    },
    /// Copied by the hypervisor, from and to pages of the pool.
    Copied {
        /// The interface to the hypervisor.
        grants: Rc<dyn Grants>,
        /// The domain that granted the pages.
        domain: DomainId,
        /// The bytes of the pages, in order.
        segments: Vec<Segment>,
    },
}

impl GrantedMemory {
    /// Makes the memory of a request whose pages are mapped. `held` has the page of each of
    /// `segments`, in the same order, and keeps it mapped.
    pub fn mapped(segments: &[Segment], held: Vec<MappedPage>) -> Self {
        let mut slices: Vec<HostSlice> = Vec::new();
        for (segment, page) in segments.iter().zip(&held) {
            let start = page.address().wrapping_add(segment.offset().into());
            let iov_len = usize::from(segment.bytes());
            match slices.last_mut() {
                Some(last) if last.iov_base as usize + last.iov_len == start as usize => {
                    last.iov_len += iov_len;
                }
                _ => slices.push(HostSlice {
                    iov_base: start.cast(),
                    iov_len,
                }),
            }
        }
        Self::Mapped { slices, held }
    }

    /// Appends transfers for the `bytes` at `local`, which correspond to the payload from byte `at`
    /// on. Returns `None` if the payload is not copied by the hypervisor, or is shorter.
    fn transfers(
        &self,
        at: u64,
        local: *mut u8,
        bytes: usize,
        transfers: &mut Vec<Transfer>,
    ) -> Option<()> {
        let Self::Copied { segments, .. } = self else {
            return None;
        };
        let (mut skip, mut done) = (usize::try_from(at).ok()?, 0);
        for segment in segments {
            let whole = usize::from(segment.bytes());
            if skip >= whole {
                skip -= whole;
                continue;
            }
            let piece = (whole - skip).min(bytes - done);
            if piece == 0 {
                break;
            }
            transfers.push(Transfer {
                grant: GrantRef(segment.grant.0),
                offset: segment.offset() + u16::try_from(skip).ok()?,
                bytes: u16::try_from(piece).ok()?,
                local: local.wrapping_add(done),
                done: false,
            });
            (skip, done) = (0, done + piece);
        }
        (done == bytes).then_some(())
    }

    /// Copies between the `bytes` at `local` and the payload from byte `at` on, by the hypervisor.
    /// Returns `None` if a part was not copied.
    fn transfer(&self, direction: Direction, at: u64, local: *mut u8, bytes: usize) -> Option<()> {
        let Self::Copied { grants, domain, .. } = self else {
            return None;
        };
        let mut transfers = Vec::new();
        self.transfers(at, local, bytes, &mut transfers)?;
        // SAFETY: both callers pass a buffer of `bytes`, which is writable if the direction is from
        // grants, and all transfers are inside of it.
        unsafe { grants.copy(*domain, direction, &mut transfers) };
        transfers.iter().all(|each| each.done).then_some(())
    }

    /// Copies from or to mapped pages. Returns whether all bytes were copied.
    fn copy_mapped(direction: CopyDirection, one: &mut CopyRequest<'_, Self>) -> bool {
        let mut at = one.at;
        one.local.iter_mut().all(|piece| {
            let from = at;
            at += piece.len() as u64;
            let copied = match direction {
                CopyDirection::FromGuest => one.payload.copy_out(from, piece),
                CopyDirection::ToGuest => one.payload.copy_in(from, piece),
            };
            copied.is_ok()
        })
    }

    /// Calls `visit` with the parts of the mapped memory from byte `at` on, `bytes` in total. Its
    /// second argument is the number of bytes in the parts before.
    fn pieces(&self, at: u64, bytes: usize, mut visit: impl FnMut(VolatileSlice<'_>, usize)) {
        let Self::Mapped { slices, .. } = self else {
            return;
        };
        let (mut skip, mut done) = (usize::try_from(at).unwrap_or(usize::MAX), 0);
        for slice in slices {
            if skip >= slice.iov_len {
                skip -= slice.iov_len;
                continue;
            }
            let piece = (slice.iov_len - skip).min(bytes - done);
            let start = slice.iov_base.cast::<u8>().wrapping_add(skip);
            // SAFETY: the range is inside of pages that `held` keeps mapped. The other domain may
            // change it at any time, so it is accessed as volatile.
            visit(unsafe { VolatileSlice::new(start, piece) }, done);
            (skip, done) = (0, done + piece);
            if done == bytes {
                break;
            }
        }
    }
}

impl Payload for GrantedMemory {
    fn bytes(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Mapped { slices, .. } => slices.iter().map(|s| s.iov_len as u64).sum(),
            Self::Copied { segments, .. } => segments.iter().map(|s| u64::from(s.bytes())).sum(),
        }
    }

    fn in_place(&self) -> Option<&[HostSlice]> {
        match self {
            Self::Mapped { slices, .. } => Some(slices),
            _ => None,
        }
    }

    fn copy_out(&self, at: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        if let Self::Mapped { .. } = self {
            let bytes = buffer.len();
            let mut copied = 0;
            self.pieces(at, bytes, |piece, done| {
                copied += piece.copy_to(&mut buffer[done..done + piece.len()]);
            });
            return if copied == bytes { Ok(()) } else { Err(Fault) };
        }
        let local = buffer.as_mut_ptr();
        self.transfer(Direction::FromGrants, at, local, buffer.len())
            .ok_or(Fault)
    }

    fn copy_in(&self, at: u64, buffer: &[u8]) -> Result<(), Fault> {
        if let Self::Mapped { .. } = self {
            let mut copied = 0;
            self.pieces(at, buffer.len(), |piece, done| {
                piece.copy_from(&buffer[done..done + piece.len()]);
                copied += piece.len();
            });
            return if copied == buffer.len() {
                Ok(())
            } else {
                Err(Fault)
            };
        }
        // The direction is to the grants, so the buffer is only read.
        let local = buffer.as_ptr().cast_mut();
        self.transfer(Direction::ToGrants, at, local, buffer.len())
            .ok_or(Fault)
    }

    /// Copies by one call to the hypervisor. All payloads must be of the same front-end.
    fn copy_all(direction: CopyDirection, copies: &mut [CopyRequest<'_, Self>]) {
        let mut transfers = Vec::new();
        let mut ends = Vec::with_capacity(copies.len());
        let mut by = None;
        for each in copies.iter_mut() {
            each.done = if let Self::Copied { grants, domain, .. } = each.payload {
                by = Some((grants, *domain));
                let mut at = each.at;
                let added = each.local.iter_mut().try_for_each(|piece| {
                    let from = at;
                    at += piece.len() as u64;
                    let (local, bytes) = (piece.as_mut_ptr(), piece.len());
                    each.payload.transfers(from, local, bytes, &mut transfers)
                });
                added.is_some()
            } else {
                Self::copy_mapped(direction, each)
            };
            ends.push(transfers.len());
        }
        let Some((grants, domain)) = by else {
            return;
        };
        let direction = match direction {
            CopyDirection::FromGuest => Direction::FromGrants,
            CopyDirection::ToGuest => Direction::ToGrants,
        };
        // SAFETY: the local memory is that of the requests' buffers, which they borrow mutably.
        unsafe { grants.copy(domain, direction, &mut transfers) };
        let mut begin = 0;
        for (each, end) in copies.iter_mut().zip(ends) {
            each.done &= transfers[begin..end].iter().all(|transfer| transfer.done);
            begin = end;
        }
    }
}
