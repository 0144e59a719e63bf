//! The program's terminal, and how large the host's is.

use core::fmt;

/// The word of the boot line that gives the program a terminal; its value is a [`Size`].
pub const WORD: &str = "ebb.terminal";

/// Rows and columns; 0: nobody knows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

impl Size {
    /// Reads `ROWSxCOLUMNS`.
    pub fn parse(text: &str) -> Option<Self> {
        let (rows, columns) = text.split_once('x')?;
        Some(Self {
            rows: rows.parse().ok()?,
            columns: columns.parse().ok()?,
        })
    }
}

/// `ROWSxCOLUMNS`.
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
