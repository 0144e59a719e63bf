//! Parsers for the options of `mount -o`, the last argument of `mount(2)`.

use crate::errno::Errno;

/// An option: its name, and the text after the `=` if there is one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MountOption<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The value, or `None` for an option without `=`.
    pub value: Option<&'a [u8]>,
}

/// Returns the options in `text`, which are separated by commas. Options without a name are
/// skipped.
pub fn options(text: &[u8]) -> impl Iterator<Item = MountOption<'_>> {
    let words = text.split(|&byte| byte == b',');
    words.filter_map(|word| {
        let equals = word.iter().position(|&byte| byte == b'=');
        let option = match equals {
            Some(at) => MountOption {
                name: &word[..at],
                value: Some(&word[at + 1..]),
            },
            None => MountOption {
                name: word,
                value: None,
            },
        };
        // Linux ignores options without a name.
        (!option.name.is_empty()).then_some(option)
    })
}

impl<'a> MountOption<'a> {
    /// Returns the value as text. Fails with `EINVAL` if it is missing, empty or not UTF-8.
    fn text(&self) -> Result<&'a str, Errno> {
        let value = self.value.filter(|value| !value.is_empty());
        core::str::from_utf8(value.ok_or(Errno::EINVAL)?).map_err(|_| Errno::EINVAL)
    }

    /// Checks that the option has no value.
    ///
    /// # Errors
    /// `EINVAL` if it has one.
    pub fn bare(&self) -> Result<(), Errno> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(Errno::EINVAL),
        }
    }

    /// Parses the value as a number below 2^32, in decimal, or in hexadecimal or octal with C's
    /// prefixes.
    ///
    /// # Errors
    /// `EINVAL` if the value is no such number.
    pub fn number(&self) -> Result<u32, Errno> {
        let (number, rest) = c_number(self.text()?)?;
        end(rest)?;
        u32::try_from(number).map_err(|_| Errno::EINVAL)
    }

    /// Parses the value as a number below 2^32 in octal.
    ///
    /// # Errors
    /// `EINVAL` if the value is no such number.
    pub fn octal(&self) -> Result<u32, Errno> {
        let text = self.text()?;
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits {
            return Err(Errno::EINVAL);
        }
        u32::from_str_radix(text, 8).map_err(|_| Errno::EINVAL)
    }

    /// Parses the value as a user or group ID. The highest number is not a valid ID.
    ///
    /// # Errors
    /// `EINVAL` if the value is no ID.
    pub fn identity(&self) -> Result<u32, Errno> {
        let number = self.number()?;
        if number == u32::MAX {
            return Err(Errno::EINVAL);
        }
        Ok(number)
    }

    /// Parses the value as a count. One of the suffixes `k`, `m`, `g`, `t`, `p` and `e`, powers of
    /// 1024, may follow the number, in upper or lower case.
    ///
    /// # Errors
    /// `EINVAL` if the value is no such count.
    pub fn count(&self) -> Result<u64, Errno> {
        let (count, rest) = scaled(self.text()?)?;
        end(rest)?;
        Ok(count)
    }

    /// Parses the beginning of the value as a count like [`Self::count`], or as a percentage of
    /// `whole`. The text after the count or the percentage is ignored, as hugetlbfs does.
    ///
    /// # Errors
    /// `EINVAL` if the value does not begin with a digit, or the count is too large.
    pub fn leading(&self, whole: u64) -> Result<u64, Errno> {
        let text = self.text()?;
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(Errno::EINVAL);
        }
        let (count, rest) = scaled(text)?;
        if rest.starts_with('%') {
            let part = u128::from(count) * u128::from(whole) / 100;
            return u64::try_from(part).map_err(|_| Errno::EINVAL);
        }
        Ok(count)
    }

    /// Parses the value as a count of bytes like [`Self::count`], or as a percentage of `whole`
    /// bytes.
    ///
    /// # Errors
    /// `EINVAL` if the value is neither.
    pub fn bytes(&self, whole: u64) -> Result<u64, Errno> {
        let (count, rest) = scaled(self.text()?)?;
        if let Some(rest) = rest.strip_prefix('%') {
            end(rest)?;
            let part = u128::from(count) * u128::from(whole) / 100;
            return u64::try_from(part).map_err(|_| Errno::EINVAL);
        }
        end(rest)?;
        Ok(count)
    }
}

fn end(rest: &str) -> Result<(), Errno> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Parses the number at the beginning of `text`, with C's prefixes. Returns the number and the text
/// after it.
///
/// # Errors
/// `EINVAL` if the text begins with no number, or with one that does not fit 64 bits.
pub fn c_number(text: &str) -> Result<(u64, &str), Errno> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(rest) => (rest, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let is_digit = |c: char| c.is_digit(radix);
    let length = digits.find(|c| !is_digit(c)).unwrap_or(digits.len());
    let number = u64::from_str_radix(&digits[..length], radix).map_err(|_| Errno::EINVAL)?;
    Ok((number, &digits[length..]))
}

/// Parses the number at the beginning of `text`, with C's prefixes and possibly one of the suffixes
/// `k`, `m`, `g`, `t`, `p` and `e`, powers of 1024, in upper or lower case. Returns the scaled
/// number and the text after it.
///
/// # Errors
/// `EINVAL` if the text begins with no number, or if the number does not fit 64 bits before or
/// after it is scaled.
pub fn scaled(text: &str) -> Result<(u64, &str), Errno> {
    const SUFFIXES: [char; 6] = ['k', 'm', 'g', 't', 'p', 'e'];
    let (number, rest) = c_number(text)?;
    let suffix = rest.chars().next().map(|c| c.to_ascii_lowercase());
    let power = SUFFIXES.iter().position(|&known| Some(known) == suffix);
    let Some(power) = power else {
        return Ok((number, rest));
    };
    let factor = 1_u64 << (10 * (power + 1));
    let number = number.checked_mul(factor).ok_or(Errno::EINVAL)?;
    Ok((number, &rest[1..]))
}

/// The options of `mount -t hugetlbfs -o`. Options that are not given are `None`.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct HugetlbfsOptions {
    /// The most huge pages.
    pub pages: Option<u64>,
    /// Number of huge pages reserved for the file system.
    pub least_pages: Option<u64>,
    /// The most files, including the root directory.
    pub files: Option<u64>,
    /// Permissions of the root directory.
    pub mode: Option<u32>,
    /// Owner of the root directory.
    pub uid: Option<u32>,
    /// Group of the root directory.
    pub gid: Option<u32>,
    /// Whether the mount is read-only, regardless of the mount flags.
    pub read_only: Option<bool>,
}

impl HugetlbfsOptions {
    /// Returns the size of huge pages in bytes that the last `pagesize` option in `text` gives.
    /// Returns `None` if there is no such option.
    ///
    /// # Errors
    /// `EINVAL` if the value is invalid.
    pub fn page_bytes(text: &[u8]) -> Result<Option<u64>, Errno> {
        let mut found = None;
        for option in options(text).filter(|option| option.name == b"pagesize") {
            found = Some(option.leading(0)?);
        }
        Ok(found)
    }

    /// Parses the options in `text`. `page` is the size of huge pages in bytes. `pool` is their
    /// number, to which percentages refer.
    ///
    /// # Errors
    /// `EINVAL` if an option is unknown or its value is invalid.
    pub fn parse(text: &[u8], page: u64, pool: u64) -> Result<Self, Errno> {
        let mut all = Self::default();
        for option in options(text) {
            match option.name {
                b"size" => all.pages = Some(option.leading(pool * page)? / page),
                b"min_size" => all.least_pages = Some(option.leading(pool * page)? / page),
                b"nr_inodes" => all.files = Some(option.leading(0)?),
                b"ro" | b"rw" => {
                    option.bare()?;
                    all.read_only = Some(option.name == b"ro");
                }
                b"mode" => all.mode = Some(option.octal()? & 0o1777),
                b"uid" => all.uid = Some(option.identity()?),
                b"gid" => all.gid = Some(option.identity()?),
                // If there are several, the last one counts; the caller derived `page` from it.
                b"pagesize" => drop(option.leading(0)?),
                _ => return Err(Errno::EINVAL),
            }
        }
        if let (Some(least), Some(most)) = (all.least_pages, all.pages)
            && least > most
        {
            return Err(Errno::EINVAL);
        }
        Ok(all)
    }
}

/// The options of `mount -t tmpfs -o`. Options that are not given are `None`.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct TmpfsOptions<'a> {
    /// The most pages; 0 is no limit.
    pub pages: Option<u64>,
    /// The most files; 0 is no limit.
    pub files: Option<u64>,
    /// Permissions of the root directory.
    pub mode: Option<u32>,
    /// Owner of the root directory.
    pub uid: Option<u32>,
    /// Group of the root directory.
    pub gid: Option<u32>,
    /// The value of `huge`: when files get huge pages.
    pub blocks: Option<&'a [u8]>,
}

impl<'a> TmpfsOptions<'a> {
    /// Parses the options in `text`. `ram_pages` is the number of pages to which percentages refer.
    ///
    /// # Errors
    /// `EINVAL` if an option is unknown here or its value is invalid.
    pub fn parse(text: &'a [u8], ram_pages: u64) -> Result<Self, Errno> {
        const PAGE: u64 = 4096;
        // Linux multiplies these numbers, and the products must not overflow.
        const MOST_PAGES: u64 = i64::MAX.unsigned_abs();
        const MOST_FILES: u64 = u64::MAX / 1024;
        let below = |value: u64, most: u64| Some(value).filter(|v| *v <= most).ok_or(Errno::EINVAL);
        let mut all = Self::default();
        for option in options(text) {
            match option.name {
                b"size" => all.pages = Some(option.bytes(ram_pages * PAGE)?.div_ceil(PAGE)),
                b"nr_blocks" => all.pages = Some(below(option.count()?, MOST_PAGES)?),
                b"nr_inodes" => all.files = Some(below(option.count()?, MOST_FILES)?),
                b"mode" => all.mode = Some(option.octal()? & 0o7777),
                b"uid" => all.uid = Some(option.identity()?),
                b"gid" => all.gid = Some(option.identity()?),
                b"huge" => all.blocks = Some(option.value.ok_or(Errno::EINVAL)?),
                // These options request what this kernel always does: 64-bit inode numbers, no
                // swap.
                b"inode64" | b"noswap" => option.bare()?,
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(all)
    }
}
