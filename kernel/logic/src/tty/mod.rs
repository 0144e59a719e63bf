//! Terminals without hardware: the layer between a keyboard and the program that reads from it, and
//! between the program's output and the screen (Linux's line discipline `N_TTY`).
//!
//! A [`Discipline`] is one terminal. It has two sides: the program reads lines and writes text on
//! one side. On the far side, a program at the master of a pseudo-terminal or the host types and
//! watches.
//!
//! - `input`: the effects of a typed byte; `edit`: erasing
//! - `screen`: output on its way to the screen
//! - `buffer`: lines until they are read
//! - `discipline`: combines them, and keeps stopped output
//!
//! All buffers have a fixed limit. So a side that does not read takes no further memory.

mod buffer;
mod characters;
mod discipline;
#[cfg(test)]
mod discipline_tests;
mod edit;
mod input;
#[cfg(test)]
mod model_tests;
mod packet;
mod screen;
mod termios;

pub use buffer::NoMemory;
pub use discipline::{Discipline, Flow, Keys, OUTPUT_ROOM};
pub use packet::Packet;
pub use termios::{
    Bytes, Characters, Control, Input, Local, Locked, NEW_BYTES, OLD_BYTES, Output, TERMIO_BYTES,
    Termios, When,
};
