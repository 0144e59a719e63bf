//! Stock Linux as a guest kernel: where the kernel comes from, what its guest's initramfs contains,
//! and how its guest reports on the program.

mod bzimage;
mod cache;
mod clock;
mod demand;
mod init;
mod kernel;
mod module_reader;
mod modules;
mod running;
mod stock;
mod strip;
mod tree;

pub(crate) use bzimage::FormatError;
pub(crate) use cache::CacheError;
pub(crate) use init::{InitError, load as load_init};
pub(crate) use kernel::{LinuxKernel, LinuxKernelError};
pub(crate) use stock::{Stock, StockError};
