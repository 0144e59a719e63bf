//! Memory pressure: who notices it ([`source`]), how often it is believed ([`gate`]), and how each
//! back-end is asked to give memory back ([`registry`]).

pub mod gate;
pub mod registry;
pub mod source;

pub use registry::{ReclaimMemory, Registration, Registry};
pub use source::{Source, watch};
