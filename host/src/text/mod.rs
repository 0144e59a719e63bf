//! Text for people: sizes and durations, messages on the terminal, the last lines of logs.

mod duration;
mod log;
mod one_line;
mod printable;
pub(crate) mod raw;
mod size;
pub(crate) mod stderr;
mod style;
mod styled;
mod terminal;
#[cfg(test)]
mod tests_of_sinks;

pub(crate) use duration::{milliseconds, parse_duration, seconds};
pub(crate) use log::{Log, Names};
pub(crate) use one_line::one_line;
#[cfg(test)]
pub(crate) use printable::tests as hostile;
pub(crate) use printable::{printable, printable_json, printable_lines, steers};
pub(crate) use size::{Rounded, Size};
pub(crate) use style::Style;
pub(crate) use styled::Styled;
pub(crate) use terminal::Terminal;
