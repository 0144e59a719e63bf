//! Memory pressure: its sources ([`source`], with [`available`] and [`growth`]), the limits on how
//! often it is reported ([`gate`]), and how each instance is notified ([`registry`]).

pub mod available;
pub mod gate;
pub mod growth;
mod latest;
pub mod registry;
pub mod source;

pub use registry::{ReclaimMemory, Registration, Registry};
pub use source::{Source, watch};
