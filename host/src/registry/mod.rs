//! The registry of the guests that run on this host, and the protocol by which other programs ask
//! for their figures.
//!
//! Each `ebb run` listens on a socket of its own in the user's runtime folder and answers bounded
//! requests there. docs/control.md describes the protocol. There is no daemon and no list of
//! guests. The sockets in the folder are the list. A socket on which no process listens belongs to
//! a run that was killed.
//!
//! If the socket cannot be created, the run goes on without it.

mod block_map;
mod client;
mod find;
mod folder;
mod pool_map;
mod protocol;
mod published;
#[cfg(test)]
mod scratch;
mod server;
mod snapshot;
mod socket;

pub(crate) use block_map::Mapper;
pub(crate) use client::{Fleet, GuestId, Presence, checked};
pub(crate) use folder::Folder;
pub(crate) use protocol::{BlockMap, Body, Cell, Figures, Life, Moment, Request};
#[cfg(test)]
pub(crate) use protocol::{Counts, Question, Region, Reply};
pub(crate) use published::harmless;
pub(crate) use published::{Facts, Published};
pub(crate) use server::{Registration, RunParts};
