//! File locks: ranges of bytes, and the holders and waiters of locks.

pub mod ranges;
pub mod table;
#[cfg(test)]
mod tests;
