//! Formats amounts for users. All are differences of one run, so all have the same unit.

/// Returns `bytes` as text in MiB, rounded down to one decimal, such as `1.5 MiB`.
pub(super) fn mebibytes(bytes: u64) -> String {
    text(tenths(bytes))
}

/// Returns the text of a change of resident memory from `before` to `after` bytes. The texts of
/// successive changes add up: each begins with the amount with which the one before ends.
pub(super) fn resident_change(before: u64, after: u64) -> String {
    let (change, before, after) = (change(before, after), mebibytes(before), mebibytes(after));
    format!("{change:>15}, resident {before} → {after}")
}

/// Returns by how much resident memory changed from `before` to `after` bytes: `1.5 MiB back` if it
/// shrank or stayed, `1.5 MiB more` if it grew. The amount is the difference of the texts of
/// [`mebibytes`], so printed amounts add up.
fn change(before: u64, after: u64) -> String {
    if tenths(after) > tenths(before) {
        format!("{} more", shrinking(after, before))
    } else {
        format!("{} back", shrinking(before, after))
    }
}

/// Returns by how much resident memory shrank from `before` to `after` bytes, such as `1.5 MiB`,
/// and `0.0 MiB` if it grew. The amount is the difference of the texts of [`mebibytes`].
pub(super) fn shrinking(before: u64, after: u64) -> String {
    text(tenths(before).saturating_sub(tenths(after)))
}

/// Returns `bytes` in tenths of a MiB, rounded down.
fn tenths(bytes: u64) -> u64 {
    // The product fits, since a guest has less than 2^60 bytes.
    bytes.saturating_mul(10) >> 20
}

fn text(tenths: u64) -> String {
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_are_cut() {
        assert_eq!(mebibytes(0), "0.0 MiB");
        assert_eq!(mebibytes((3 << 20) - 1), "2.9 MiB");
        assert_eq!(mebibytes(1 << 30), "1024.0 MiB");
    }

    #[test]
    fn changes_are_the_difference_of_what_is_printed() {
        let tenth = (1 << 20) / 10;
        assert_eq!(change(1 << 30, 1 << 20), "1023.0 MiB back");
        assert_eq!(change(7, 7), "0.0 MiB back");
        assert_eq!(change(1 << 20, 4 << 20), "3.0 MiB more");
        // Each amount is cut, and their difference by itself would be 0.1 less.
        let (before, after) = (10 * tenth + 9, 8 * tenth + 10);
        let amounts = (
            &*mebibytes(before),
            &*mebibytes(after),
            &*change(before, after),
        );
        assert_eq!(amounts, ("1.0 MiB", "0.8 MiB", "0.2 MiB back"));
        assert_eq!(mebibytes(before - after), "0.1 MiB");
    }
}
