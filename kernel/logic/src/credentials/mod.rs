//! A thread's credentials and what they permit: user and group IDs, capabilities, permission bits.

pub mod access;
pub mod attributes;
pub mod capabilities;
pub mod changes;
pub mod others;
pub mod secure_bits;
mod subject;

pub use access::{Owned, Wanted};
pub use capabilities::Capabilities;
pub use secure_bits::SecureBits;
pub use subject::{Credentials, Ids};

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod changes_tests;
