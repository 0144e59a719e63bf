//! The kind of guest that an experiment runs in.

use super::give_back_mode::GiveBackMode;
use crate::text::Size;

/// The properties of a guest of an experiment: memory, number of CPUs, and how it runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) memory: Size,
    pub(crate) cpus: u32,
    /// How the guest gives memory back.
    pub(crate) give_back: GiveBackMode,
    /// Whether instructions are counted.
    pub(crate) icount: bool,
}
