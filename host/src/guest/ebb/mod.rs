//! Ebb's own kernel: its image, and the header page that it shows its host.

mod header;
mod image;
mod kernel;
mod running;
mod symbols;

pub(crate) use image::ImageError;
pub(crate) use kernel::EbbKernel;
#[cfg(test)]
pub(crate) use {header::Header, running::EbbGuest};
