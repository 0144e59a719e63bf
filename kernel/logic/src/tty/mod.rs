//! Terminals without a machine: what stands between the keys that somebody types and the program that
//! reads them, and between what it writes and the screen (Linux's line discipline `N_TTY`).
//!
//! [`Discipline`] is one terminal. It has two sides: the program's, which reads lines and writes text,
//! and the far one, a program at the master of a pseudo-terminal or the host, which types and watches.

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
