//! Free memory of a guest, taken by the host without asking: it owns the guest's RAM, and takes part in the guest's allocator
//! by the same atomic words. `ebb_mm::Reclaimer` says which blocks are next; here is what maps, punches and waits, and what asks a
//! guest for more than is free.

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
