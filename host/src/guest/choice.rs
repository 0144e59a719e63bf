//! Loads the guest kernel that the user chose.

use super::ebb::{EbbKernel, ImageError};
use super::kernel::{Extras, Kernel};
use super::linux::{LinuxKernel, LinuxKernelError};
use crate::machine::KernelChoice;
use crate::text::Size;
use std::path::Path;

/// The reason why the chosen kernel cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error(transparent)]
    Ebb(#[from] ImageError),
    #[error(transparent)]
    Linux(#[from] LinuxKernelError),
}

/// Returns the smallest memory with which the kernel of `choice` boots.
pub(crate) fn memory_min(choice: &KernelChoice) -> Size {
    match choice {
        KernelChoice::Ebb => EbbKernel::MEMORY_MIN,
        KernelChoice::Linux(_) => LinuxKernel::MEMORY_MIN,
    }
}

/// Loads the chosen kernel. `image` is a file that replaces the embedded kernel if the choice is
/// Ebb's own; it is ignored for Linux. `extras` says which drivers a Linux guest needs in addition.
/// Without an image in `choice`, Debian's kernel may be fetched from the network.
///
/// Fails if the kernel, its modules or the first process of its guests cannot be found or read.
pub(crate) fn load(
    choice: &KernelChoice,
    image: Option<&Path>,
    extras: Extras,
) -> Result<Box<dyn Kernel>, KernelError> {
    Ok(match choice {
        KernelChoice::Ebb => Box::new(EbbKernel::load(image)?),
        KernelChoice::Linux(image) => Box::new(LinuxKernel::load(image.as_deref(), extras)?),
    })
}
