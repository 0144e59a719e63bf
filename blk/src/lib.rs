//! A block back-end whose buffer pools give memory back when the host runs short of it.
//!
//! A host that serves many disks keeps a pool of pages for each. Pools sized for the worst case
//! starve the host, and small pools starve the I/O. Here a pool grows on demand, and each batch of
//! requests leaves up to `max_buffer_pages` free pages. At a memory pressure event the pool is
//! *squeezed*: it frees all its free pages at once, and for some seconds frees every page that no
//! request needs. Freed pages leave the process (`madvise`), so its resident size shrinks.
//!
//! * [`pool`]: the pages, the limit, the squeeze. It has no threads and no clock.
//! * [`pressure`]: detects memory pressure and notifies each instance.
//! * [`request`]: requests, and the trait of the transports that they arrive by.
//! * [`vhost_user`], [`xen`]: the two transports.
//! * [`engine`], [`io`], [`image`]: carry requests out on a file, a block device or RAM.
//! * [`instance`], [`server`], [`watcher`], [`control`]: one thread for each disk, and their
//!   management.

pub mod arena;
pub mod capabilities;
pub mod control;
pub mod engine;
pub mod failure;
pub mod image;
pub mod instance;
pub mod io;
pub mod knobs;
pub mod messages;
pub mod pool;
pub mod pressure;
pub mod request;
pub mod sandbox;
pub mod server;
pub mod time;
pub mod vhost_user;
pub mod watcher;
pub mod xen;
