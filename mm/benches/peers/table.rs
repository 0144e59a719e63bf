//! Prints the results.

use std::fmt::{self, Write};

use crate::{
    contest::GIB,
    rows::{Row, Stage, TIMES},
};

/// The median and the quartiles of one row for one allocator.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Figure {
    median: f64,
    low: f64,
    high: f64,
    rounds: usize,
    /// Whether the memory was smaller than the row says.
    smaller: bool,
}

impl Figure {
    pub(crate) fn of(mut samples: Vec<f64>, smaller: bool) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let at = |part: usize| samples.get(samples.len() * part / 4).copied();
        Some(Self {
            median: at(2)?,
            low: at(1)?,
            high: at(3)?,
            rounds: samples.len(),
            smaller,
        })
    }

    /// Returns half of the distance between the quartiles, in percent of the median.
    fn spread(self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.high - self.low) / 2.0 / self.median * 100.0
    }
}

struct Line {
    row: Row,
    stage: Stage,
    figures: Vec<Option<Figure>>,
}

/// The table. The other columns are compared with the first.
pub(crate) struct Table {
    columns: Vec<&'static str>,
    large: u64,
    lines: Vec<Line>,
}

impl Table {
    pub(crate) fn new(columns: Vec<&'static str>, large: u64) -> Self {
        Self {
            columns,
            large,
            lines: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: Row, stage: Stage, figures: Vec<Option<Figure>>) {
        self.lines.push(Line {
            row,
            stage,
            figures,
        });
    }

    fn name(&self, line: &Line) -> String {
        let on = match line.stage {
            Stage::Small => String::new(),
            _ if self.large >= 1024 * GIB => format!(", {} TiB", self.large / GIB / 1024),
            _ => format!(", {} GiB", self.large / GIB),
        };
        format!("{}{on}, {}", line.row.name, line.row.unit)
    }

    /// Returns the table as JSON.
    pub(crate) fn json(&self, rounds: usize) -> String {
        let mut out = format!(
            "{{\"rounds\":{rounds},\"large_gib\":{},\"rows\":[",
            self.large / GIB
        );
        for (at, line) in self.lines.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let bar = line.row.bar.map_or("null".into(), |bar| bar.to_string());
            // Writing to a string does not fail.
            let _ = write!(
                out,
                "{comma}\n {{\"name\":\"{}\",\"unit\":\"{}\",\"bar\":{bar},\"figures\":{{",
                line.row.name, line.row.unit
            );
            let figures = line.figures.iter().zip(&self.columns);
            let mut comma = "";
            for (figure, column) in figures.filter_map(|(f, c)| Some((f.as_ref()?, c))) {
                let _ = write!(
                    out,
                    "{comma}\"{column}\":{{\"median\":{},\"low\":{},\"high\":{},\"rounds\":{},\
                     \"smaller\":{}}}",
                    figure.median, figure.low, figure.high, figure.rounds, figure.smaller
                );
                comma = ",";
            }
            out += "}}";
        }
        out + "\n]}"
    }
}

/// The tolerance of upper bounds: they are compared at their own precision.
const ROUNDING: f64 = 1.005;

/// Formats a number with about three digits.
fn short(value: f64) -> String {
    match value {
        ..0.1 => format!("{value:.2}"),
        ..10.0 => format!("{value:.1}"),
        ..10_000.0 => format!("{value:.0}"),
        ..1e7 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.0}M", value / 1e6),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| |")?;
        for column in &self.columns {
            write!(f, " {column} |")?;
        }
        write!(f, " bar |\n|---|")?;
        for _ in &self.columns {
            write!(f, "---|")?;
        }
        writeln!(f, "---|")?;
        let mut smaller = false;
        for line in &self.lines {
            write!(f, "| {} |", self.name(line))?;
            let own = line.figures.first().copied().flatten();
            for (at, figure) in line.figures.iter().enumerate() {
                let Some(figure) = figure else {
                    write!(f, " - |")?;
                    continue;
                };
                smaller |= figure.smaller;
                let star = if figure.smaller { "*" } else { "" };
                write!(f, " {}{star}", short(figure.median))?;
                if figure.spread() >= 0.5 {
                    write!(f, " ±{:.0}%", figure.spread())?;
                }
                if let Some(own) = own.filter(|_| at != 0 && line.row.unit != TIMES) {
                    write!(f, " (**{}×**)", short(figure.median / own.median))?;
                }
                write!(f, " |")?;
            }
            match (line.row.bar, own) {
                (Some(bar), Some(own)) => {
                    let met = if own.median <= bar * ROUNDING {
                        "met"
                    } else {
                        "missed"
                    };
                    writeln!(f, " {}: {met} |", short(bar))?;
                }
                _ => writeln!(f, " |")?,
            }
        }
        writeln!(
            f,
            "\nMedians, half the distance of the quartiles, and in brackets how many times Ebb's \
             the figure is.\nTimes are those that the threads were given CPUs for. `-`: it cannot, \
             or its metadata would fill the machine."
        )?;
        if smaller {
            writeln!(f, "`*`: on 16 GiB, as its metadata would fill the machine.")?;
        }
        Ok(())
    }
}
