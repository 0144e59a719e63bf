//! The limits of a disk, and the format of its requests.

pub mod limits;
pub mod request;
#[cfg(test)]
mod tests;
