//! The bytes of a pipe and its ends.

pub mod ends;
#[cfg(test)]
mod ends_tests;
pub mod ring;
