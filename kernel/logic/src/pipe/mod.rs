//! A pipe's bytes and its ends.

pub mod ends;
#[cfg(test)]
mod ends_tests;
pub mod ring;
