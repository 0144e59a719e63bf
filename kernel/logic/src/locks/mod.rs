//! File locks: ranges, and who holds and waits for them.

pub mod ranges;
pub mod table;
#[cfg(test)]
mod tests;
