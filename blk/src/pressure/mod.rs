//! Memory pressure: who notices it ([`source`]), by what ([`available`], [`growth`]), how often it is
//! believed ([`gate`]), and how each back-end is asked to give memory back ([`registry`]).

pub mod available;
pub mod gate;
pub mod growth;
pub mod registry;
pub mod source;

pub use registry::{ReclaimMemory, Registration, Registry};
pub use source::{Source, watch};
