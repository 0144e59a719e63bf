//! Sizes as people write them: `4096`, `64K`, `512M`, `1G`, `1.4G`.

use crate::Failure;

/// The largest size in a user address space of 47 bits.
const MAX_BYTES: f64 = (1_u64 << 47) as f64;

/// Reads a size and returns it in bytes. The suffixes K, M and G, or k, m and g, are powers of
/// 1024. Decimals are allowed; part of a byte is dropped.
///
/// # Errors
/// [`Failure::Usage`] with the text if it is no size from 1 to 2^47 − 1 bytes.
pub(crate) fn parse(text: &str) -> Result<usize, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "{text:?} is not a size (examples: 4096, 64K, 512M, 1.4G)"
        ))
    };
    let (digits, shift) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 20),
        Some('g' | 'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if !digits.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(wrong());
    }
    let value: f64 = digits.parse().map_err(|_| wrong())?;
    let bytes = value * f64::from(1_u32 << shift);
    if !(1.0..MAX_BYTES).contains(&bytes) {
        return Err(wrong());
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked just above to be positive and below 2^47"
    )]
    Ok(bytes as usize)
}

/// Formats `bytes` bytes in MiB with one decimal, rounded down, such as `1.5 MiB`.
pub(crate) fn mebibytes(bytes: usize) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("512M", 512 << 20),
            ("1G", 1 << 30),
            ("1.5G", 3 << 29),
        ] {
            assert_eq!(parse(text).expect(text), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_by_name() {
        for text in [
            "", "K", "-1", "1e9", "nan", "inf", "0", "0.1", "1T", "999999G", "1..2", "é",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
