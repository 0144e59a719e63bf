//! Free memory of a guest, taken by the host without asking: it owns the guest's RAM, and takes part in the guest's allocator
//! by the same atomic words. `ebb_mm::Reclaimer` says which blocks are next; here is what maps, punches and waits.

mod engine;
mod error;
mod lease;
mod pace;
mod worker;

pub(crate) use engine::{FreeMemory, Reclaimed};
pub(crate) use worker::serve;
