//! Renders the status line at the bottom of the terminal: memory used by the guest and memory held
//! of the host.

use crate::guest::Sample;
use crate::text::{Size, Style};

/// The most character cells of a bar.
const BAR_MAX: usize = 24;
/// A bar with fewer cells is left out.
const BAR_MIN: usize = 4;

/// Returns the status line for `sample` of a guest with `memory`: used and resident memory in MiB,
/// and bars if there is space. It has fewer than `columns` characters, and none if `columns` is 0
/// or 1. Used memory that is not known shows as `?`.
pub(crate) fn render(sample: &Sample, memory: Size, columns: usize, style: Style) -> String {
    let mebibytes = |bytes: u64| (bytes + (1 << 19)) >> 20;
    let used = sample
        .used
        .map_or_else(|| "?".to_owned(), |used| mebibytes(used).to_string());
    let resident = mebibytes(sample.resident).to_string();
    // A fixed width, so that the line does not jump while a figure grows.
    let width = mebibytes(memory.bytes()).to_string().len();
    let standstill = match sample.standstill {
        Some(_) => "paused  ",
        None => "",
    };
    let text = |used_bar: &str, resident_bar: &str| {
        format!(
            "ebb  {standstill}used {used_bar}{used:>width$}  resident {resident_bar}{resident:>width$} MiB of {memory}"
        )
    };
    // The last column stays empty, since some terminals wrap there.
    let room = columns.saturating_sub(1);
    let bare = text("", "").chars().count();
    // Besides its cells a bar has two brackets and a blank.
    let cells = (room.saturating_sub(bare) / 2)
        .saturating_sub(3)
        .min(BAR_MAX);
    if cells < BAR_MIN {
        return text("", "").chars().take(room).collect();
    }
    let bar = |bytes: u64| format!("{} ", bar(bytes, memory.bytes(), cells, style));
    text(&bar(sample.used.unwrap_or(0)), &bar(sample.resident))
}

fn bar(bytes: u64, of: u64, cells: usize, style: Style) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let steps = cells * if style.unicode { 8 } else { 1 };
    let scaled = u128::from(bytes) * u128::try_from(steps).unwrap_or(0) / u128::from(of.max(1));
    let filled = usize::try_from(scaled).unwrap_or(steps).min(steps);
    let (open, close, full, whole, part) = if style.unicode {
        ('▕', '▏', '█', filled / 8, EIGHTHS[filled % 8])
    } else {
        ('[', ']', '#', filled, ' ')
    };
    let mut text = String::from(open);
    for cell in 0..cells {
        text.push(match cell.cmp(&whole) {
            std::cmp::Ordering::Less => full,
            std::cmp::Ordering::Equal => part,
            std::cmp::Ordering::Greater => ' ',
        });
    }
    text.push(close);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { unicode: false };
    const UNICODE: Style = Style { unicode: true };

    fn sample(used: Option<u64>, resident: u64) -> Sample {
        Sample {
            used: used.map(|m| m << 20),
            resident: resident << 20,
            ..Sample::default()
        }
    }

    #[test]
    fn fits_whatever_the_width() {
        let sample = sample(Some(700), 812);
        for columns in 0..200 {
            for style in [PLAIN, UNICODE] {
                let line = render(&sample, Size::mebibytes(1024), columns, style);
                assert!(line.chars().count() < columns.max(1), "{columns}: {line}");
            }
        }
    }

    #[test]
    fn shows_both_figures() {
        let line = render(&sample(Some(512), 1024), Size::mebibytes(1024), 60, PLAIN);
        assert_eq!(
            line,
            "ebb  used [###    ]  512  resident [#######] 1024 MiB of 1G"
        );
        let line = render(&sample(None, 3), Size::mebibytes(1024), 40, UNICODE);
        assert_eq!(line, "ebb  used    ?  resident    3 MiB of 1G");
    }

    #[test]
    fn bars_have_eighths_and_never_overflow() {
        assert_eq!(bar(1, 16, 2, UNICODE), "▕▏ ▏");
        assert_eq!(bar(16, 16, 2, UNICODE), "▕██▏");
        assert_eq!(bar(u64::MAX, 16, 2, UNICODE), "▕██▏");
        assert_eq!(bar(8, 16, 4, PLAIN), "[##  ]");
    }
}
