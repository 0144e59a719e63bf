//! What a pageblock is used for, as a reader from outside sees it.

use crate::{Frame, Mobility, frame::PAGEBLOCK_FRAMES, giant::Giant, state::State};

/// What a pageblock says of itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Usage {
    /// No memory is there, or it is offline.
    Missing,
    /// All of it is free. `unreported`: the host may hold memory for it.
    Free {
        /// Whether the host may hold memory for it.
        unreported: bool,
    },
    /// So many of its frames cannot be had, 1 to 511: they are in use or in a front.
    Partial(u16),
    /// None of its frames is free.
    Full,
    /// It is allocated as a whole, alone or with the GiB that it is in.
    Whole,
    /// Somebody has taken it out.
    Isolated,
    /// Somebody moves what is in use of it elsewhere: still so many frames, 0 to 512.
    Emptying(u16),
}

/// A pageblock, as it was when it was looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlockView {
    /// Its first frame.
    pub start: Frame,
    /// What it is used for.
    pub usage: Usage,
    /// The mobility of its frames in use; means nothing where none is.
    pub mobility: Mobility,
}

impl BlockView {
    /// The block whose first frame is `start`, in this state, in a GiB whose word is this.
    pub(crate) fn new(start: Frame, giant: Giant, state: State) -> Self {
        let usage = if giant.is_huge() {
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
                unreported: state.is_touched() || giant.is_touched(),
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
            mobility: if giant.is_huge() {
                giant.mobility()
            } else {
                state.mobility()
            },
        }
    }
}
