//! Formats amounts for users. All are differences of one run, so all have the same unit.

/// Returns `bytes` as text in MiB, rounded down to one decimal, such as `1.5 MiB`.
pub(super) fn mebibytes(bytes: u64) -> String {
    // The product fits, since a guest has less than 2^60 bytes.
    let tenths = bytes.saturating_mul(10) >> 20;
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
}
