//! The size of the program's terminal.

use core::fmt;

/// The kernel parameter that gives the program a terminal. Its value is the terminal's [`Size`].
/// Absent if the program has no terminal.
pub const PARAMETER: &str = "ebb.terminal";

/// The size of a terminal in characters. 0 rows or columns mean that the size is unknown.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of rows.
    pub rows: u16,
    /// Number of columns.
    pub columns: u16,
}

impl Size {
    /// Reads `ROWSxCOLUMNS`. Returns `None` if `text` has another form or a number exceeds 16 bits.
    pub fn parse(text: &str) -> Option<Self> {
        let (rows, columns) = text.split_once('x')?;
        Some(Self {
            rows: rows.parse().ok()?,
            columns: columns.parse().ok()?,
        })
    }
}

/// Writes `ROWSxCOLUMNS`.
impl fmt::Display for Size {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}x{}", self.rows, self.columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn sizes_come_back() {
        let size = Size {
            rows: 24,
            columns: 65_535,
        };
        assert_eq!(size.to_string(), "24x65535");
        assert_eq!(Size::parse("24x65535"), Some(size));
        for text in ["", "24", "24x", "x80", "24x65536", "-1x80", "24x80x1"] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
    }
}
