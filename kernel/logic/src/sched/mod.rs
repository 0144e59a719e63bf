//! The scheduler's arithmetic and the protocol of thread states.

pub mod holder;
#[cfg(test)]
mod holder_tests;
pub mod policy;
#[cfg(test)]
mod policy_tests;
pub mod realtime;
#[cfg(test)]
mod realtime_tests;
pub mod state;
#[cfg(test)]
mod state_tests;
