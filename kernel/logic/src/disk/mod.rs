//! What a disk can do, and the bytes of its requests.

pub mod limits;
pub mod request;
#[cfg(test)]
mod tests;
