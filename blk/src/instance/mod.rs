//! An instance: the thread of one disk, with its front-end, its image and its pool.
//!
//! This thread does all work of the instance: messages of the front-end, kicks, completions and
//! pressure events. So its data needs no lock. Other threads have a [`Handle`]. With that they
//! change settings, stop the instance and read the figures that it publishes. The thread's loop is
//! in `vhost_user` and `xen`, one for each transport.

mod handle;
mod shared;
mod stats;
mod vhost_user;
mod waiting;
mod xen;

pub use handle::{Config, Confine, Handle, STOP_LIMIT, Socket};
pub use shared::Figures;
