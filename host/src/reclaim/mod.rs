//! Reclaims memory of a guest from the host. The host owns the guest's RAM and takes part in the
//! guest's allocator through the same atomic words. So it can take free pageblocks without asking
//! the guest.
//!
//! `ebb_mm::Reclaimer` selects the next blocks. This module maps the allocator's memory, punches
//! holes and waits. It also asks a guest for more memory than is free.

mod asked;
mod engine;
mod error;
mod lease;
mod pace;
mod pieces;
mod squeeze;
mod standing;
mod worker;

pub(crate) use asked::{Asked, Means, stands_still, steps};
pub(crate) use engine::{FreeMemory, Reclaimed};
pub(crate) use squeeze::{Wanted, deflate, squeeze};
pub(crate) use standing::Standing;
pub(crate) use worker::serve;
