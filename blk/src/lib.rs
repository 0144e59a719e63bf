//! A block back-end whose buffer pool gives memory back when the host runs short of it.
//!
//! A host that serves many disks keeps a pool of pages for each. Sized for the worst case the
//! pools starve the host, sized small they starve the I/O. Here a pool grows on demand, keeps up
//! to `max_buffer_pages` free pages, and is *squeezed* when memory gets tight: all that is free goes at a
//! pressure event, and nothing that no request needs is kept for a while after it. What goes leaves the
//! process (`madvise`), so that the resident size shows it.
//!
//! * [`pool`]: the pages, the limit, the squeeze; without threads and without a clock.
//! * [`pressure`]: who notices that memory is tight, and how each instance is asked.

pub mod arena;
pub mod capabilities;
pub mod control;
pub mod engine;
pub mod failure;
pub mod image;
pub mod instance;
pub mod io;
pub mod knobs;
pub mod pool;
pub mod pressure;
pub mod request;
pub mod sandbox;
pub mod server;
pub mod time;
pub mod vhost_user;
pub mod watcher;
pub mod words;
pub mod xen;
