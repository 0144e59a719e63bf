//! What people read: amounts, the terminal, the last lines of logs.

mod duration;
mod log;
pub(crate) mod raw;
mod size;
mod style;
mod terminal;

pub(crate) use duration::{parse_duration, seconds};
pub(crate) use log::{Log, Names, printable};
pub(crate) use size::{Rounded, Size};
pub(crate) use style::Style;
pub(crate) use terminal::Terminal;
