//! The kernel that was asked for.

use super::ebb::{EbbKernel, ImageError};
use super::kernel::{Extras, Kernel};
use super::linux::{LinuxKernel, LinuxKernelError};
use crate::machine::KernelChoice;
use crate::text::Size;
use std::path::Path;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error(transparent)]
    Ebb(#[from] ImageError),
    #[error(transparent)]
    Linux(#[from] LinuxKernelError),
}

/// The least memory with which such a kernel boots.
pub(crate) fn memory_min(choice: &KernelChoice) -> Size {
    match choice {
        KernelChoice::Ebb => EbbKernel::MEMORY_MIN,
        KernelChoice::Linux(_) => LinuxKernel::MEMORY_MIN,
    }
}

/// The kernel that was asked for; `image` is one of ours to take instead of the one in this binary.
/// A guest that has more needs drivers for it.
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
