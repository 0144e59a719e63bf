//! What kind of guest an experiment runs in.

use super::way::Way;
use crate::text::Size;

/// One guest of an experiment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) memory: Size,
    pub(crate) cpus: u32,
    pub(crate) give_back: Way,
    pub(crate) icount: bool,
}
