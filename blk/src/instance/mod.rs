//! One disk: a thread that serves its front-end, its image and its pool.
//!
//! Everything of an instance happens on this thread, so nothing in it needs a lock: messages of
//! the front-end, kicks, completions, pressure events. Other threads reach it by its [`Handle`]:
//! they set knobs, ask it to stop, and read the figures that it publishes. What the thread does is
//! in `vhost_user` and `xen`, one for each door.

mod handle;
mod shared;
mod vhost_user;
mod waiting;
mod xen;

pub use handle::{Config, Confine, Handle, STOP_LIMIT, Socket};
pub use shared::Figures;
