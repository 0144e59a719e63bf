//! The data between `ebb` and a running guest: the program's streams, and requests to the guest.

mod control;
mod input;
mod output;

pub(crate) use control::Control;
pub(crate) use input::{feed, input_is_empty, input_is_terminal};
pub(crate) use output::{Output, outputs_are_one};
