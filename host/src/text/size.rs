//! Memory sizes as users write them: `512M`, `2G`, `1.5G`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes that is parsed and written with a binary unit, such as `512M` or `1.5G`.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Size(pub(crate) u64);

/// The binary units, largest first, with the letters that name them.
const UNITS: [(char, u64); 4] = [
    ('T', 1 << 40),
    ('G', 1 << 30),
    ('M', 1 << 20),
    ('K', 1 << 10),
];

impl Size {
    /// Returns the size of `mebibytes` MiB.
    pub(crate) const fn mebibytes(mebibytes: u64) -> Self {
        Self(mebibytes << 20)
    }

    /// Returns the size in bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.0
    }
}

/// The reason why a text is no size that [`Size`] can hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    #[error("`{0}` has no unit; write it like 512M or 2G")]
    NoUnit(String),
    #[error("`{0}` is not a size; write it like 512M or 2G")]
    Malformed(String),
    #[error("`{0}` is more than this machine can count")]
    TooLarge(String),
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let malformed = || SizeError::Malformed(text.to_owned());
        let trimmed = text
            .strip_suffix("iB")
            .or_else(|| text.strip_suffix('B'))
            .unwrap_or(text);
        let Some(letter) = trimmed.chars().last() else {
            return Err(malformed());
        };
        let Some((_, unit)) = UNITS
            .iter()
            .find(|(name, _)| *name == letter.to_ascii_uppercase())
        else {
            let number = text.parse::<u64>().is_ok();
            return Err(if number {
                SizeError::NoUnit(text.to_owned())
            } else {
                malformed()
            });
        };
        let number = &trimmed[..trimmed.len() - letter.len_utf8()];
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        // A sixth decimal of a mebibyte is about a byte. More decimals could overflow the product.
        if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 6 {
            return Err(malformed());
        }
        let too_large = || SizeError::TooLarge(text.to_owned());
        let whole: u64 = whole.parse().map_err(|_| too_large())?;
        let mut bytes = whole.checked_mul(*unit).ok_or_else(too_large)?;
        if !fraction.is_empty() {
            let value: u64 = fraction.parse().map_err(|_| malformed())?;
            let scale = fraction.bytes().fold(1u64, |scale, _| scale * 10);
            // value < scale <= 10^6 and unit <= 2^40: the product stays below 2^60.
            bytes = bytes
                .checked_add(value * *unit / scale)
                .ok_or_else(too_large)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Size {
    /// Writes the exact size in the largest unit that divides it, or in bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, unit) in UNITS {
            if self.0 != 0 && self.0.is_multiple_of(unit) {
                return write!(f, "{}{letter}", self.0 / unit);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

/// A number of bytes for people to read, rounded to a tenth of a MiB or GiB.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Rounded(pub(crate) u64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = |unit: u64| {
            let scaled = (u128::from(self.0) * 10 + u128::from(unit) / 2) / u128::from(unit);
            (scaled / 10, scaled % 10)
        };
        let (number, unit) = if self.0 >= 10 << 30 {
            (tenths(1 << 30), "GiB")
        } else {
            (tenths(1 << 20), "MiB")
        };
        write!(f, "{}.{} {unit}", number.0, number.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_users_write() {
        for (text, bytes) in [
            ("512M", 512 << 20),
            ("2G", 2 << 30),
            ("1.5G", 3 << 29),
            ("64MiB", 64 << 20),
            ("1t", 1 << 40),
            ("131072K", 128 << 20),
            ("0.25G", 256 << 20),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_by_name() {
        assert_eq!(
            "1024".parse::<Size>(),
            Err(SizeError::NoUnit("1024".into()))
        );
        for text in [
            "", "G", "-1G", "1..5G", "1.5.5G", "lots", "1,5G", "é", ".5G",
        ] {
            assert_eq!(
                text.parse::<Size>(),
                Err(SizeError::Malformed(text.into())),
                "{text}"
            );
        }
        let huge = "99999999999T";
        assert_eq!(huge.parse::<Size>(), Err(SizeError::TooLarge(huge.into())));
    }

    #[test]
    fn prints_exactly_or_rounded() {
        assert_eq!(Size::mebibytes(1536).to_string(), "1536M");
        assert_eq!(Size::mebibytes(2048).to_string(), "2G");
        assert_eq!(Rounded(1536 << 20).to_string(), "1536.0 MiB");
        assert_eq!(Rounded(64 << 30).to_string(), "64.0 GiB");
        assert_eq!(Rounded(0).to_string(), "0.0 MiB");
    }
}
