//! The use of a pageblock, as a reader of the metadata from outside sees it.

use crate::{Frame, Mobility, frame::PAGEBLOCK_FRAMES, gib::Gib, state::State};

/// The use of a pageblock, decoded from its state word and its GiB's word.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Usage {
    /// The pageblock has no memory, or its memory is offline.
    Missing,
    /// All of the pageblock is free.
    Free {
        /// Whether the host may hold memory for it.
        unreported: bool,
    },
    /// The number of frames, 1 to 511, that are in use or in a per-CPU cache. The others are free.
    Partial(u16),
    /// No frame is free.
    Full,
    /// The pageblock is allocated as one block, alone or with its GiB.
    Whole,
    /// The pageblock is isolated by the guest, or taken out by a host.
    Isolated,
    /// The frames in use are being migrated out of the pageblock. The number of frames still in
    /// use, 0 to 512.
    Emptying(u16),
}

/// The use of a pageblock at the moment when it was read. It does not change with the pageblock.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlockView {
    /// The first frame of the pageblock.
    pub start: Frame,
    /// The use of the pageblock.
    pub usage: Usage,
    /// The mobility of the frames in use. Without meaning if no frame is in use.
    pub mobility: Mobility,
}

impl BlockView {
    /// Decodes the pageblock that begins at `start` from its GiB's word and its state word.
    pub(crate) fn new(start: Frame, gib: Gib, state: State) -> Self {
        let usage = if gib.is_huge() {
            Usage::Whole
        } else if state.is_emptying() {
            Usage::Emptying(u16::try_from(state.used()).unwrap_or(0))
        } else if state.is_isolated() {
            Usage::Isolated
        } else if state.is_missing() || state.is_offline() {
            Usage::Missing
        } else if state.is_huge() {
            Usage::Whole
        } else if state.is_free() {
            Usage::Free {
                unreported: state.is_touched() || gib.is_touched(),
            }
        } else {
            match u16::try_from(state.count()) {
                Ok(used) if u64::from(used) < PAGEBLOCK_FRAMES => Usage::Partial(used),
                _ => Usage::Full,
            }
        };
        Self {
            start,
            usage,
            mobility: if gib.is_huge() {
                gib.mobility()
            } else {
                state.mobility()
            },
        }
    }
}
