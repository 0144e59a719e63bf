//! Reads the setup header of a Linux kernel image (Documentation/arch/x86/boot.rst).

/// The file offsets in bytes of the setup header's fields, which are little-endian.
mod field {
    /// The offset of the boot flag, 16 bits, which is 0xaa55.
    pub(super) const BOOT_FLAG: usize = 0x1fe;
    /// The offset of the magic number, the four bytes `HdrS`.
    pub(super) const MAGIC: usize = 0x202;
    /// The offset of the boot protocol's version, 16 bits.
    pub(super) const VERSION: usize = 0x206;
    /// The offset of the release string's position, 16 bits, relative to [`SETUP`](super::SETUP).
    pub(super) const KERNEL_VERSION: usize = 0x20e;
    /// The offset of `loadflags`, 8 bits. Bit 0 says that the kernel is loaded high.
    pub(super) const LOAD_FLAGS: usize = 0x211;
    /// The offset of `xloadflags`, 16 bits. Bit 0 says that the kernel is a 64-bit one.
    pub(super) const EXTENDED_LOAD_FLAGS: usize = 0x236;
    /// The offset of a number of 32 bits, the bytes of memory that the kernel needs until it has
    /// unpacked itself.
    pub(super) const INIT_SIZE: usize = 0x260;
}

/// The oldest version of the boot protocol that has all fields used here.
const VERSION_MIN: u16 = 0x020c;
/// The file offset to which the value of [`field::KERNEL_VERSION`] is relative.
const SETUP: usize = 0x200;
/// The maximum length of a release string in bytes.
const RELEASE_MAX: usize = 128;

/// The reason why a file is not a kernel that `ebb` can boot.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum FormatError {
    #[error("it is not a Linux kernel (a bzImage)")]
    Magic,
    #[error("its boot protocol {0:#06x} is too old")]
    Version(u16),
    #[error("it is a 32-bit kernel")]
    Narrow,
    #[error("it does not say which release it is")]
    Release,
}

/// The facts from the setup header of a Linux kernel's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BzImage {
    /// The release as `uname -r` prints it.
    pub(crate) release: String,
    /// The bytes of memory that the kernel needs until it has unpacked itself.
    pub(crate) init_bytes: u64,
}

impl BzImage {
    /// Reads the setup header of a kernel file with the contents `file`. Fails if `file` is not a
    /// 64-bit bzImage that is loaded high, if its boot protocol is older than 2.12, or if its
    /// release is missing or unfit for a path.
    pub(crate) fn parse(file: &[u8]) -> Result<Self, FormatError> {
        let half = |at: usize| {
            let bytes = file.get(at..at + 2).ok_or(FormatError::Magic)?;
            Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
        };
        let is_kernel = half(field::BOOT_FLAG)? == 0xaa55
            && file.get(field::MAGIC..field::MAGIC + 4) == Some(b"HdrS");
        if !is_kernel {
            return Err(FormatError::Magic);
        }
        let version = half(field::VERSION)?;
        if version < VERSION_MIN {
            return Err(FormatError::Version(version));
        }
        let loaded_high = file
            .get(field::LOAD_FLAGS)
            .is_some_and(|flags| flags & 1 != 0);
        if !loaded_high {
            return Err(FormatError::Magic);
        }
        if half(field::EXTENDED_LOAD_FLAGS)? & 1 == 0 {
            return Err(FormatError::Narrow);
        }
        let start = SETUP + usize::from(half(field::KERNEL_VERSION)?);
        let text = file.get(start..).ok_or(FormatError::Release)?;
        let text = &text[..text.len().min(RELEASE_MAX)];
        let end = text
            .iter()
            .position(|byte| matches!(byte, b' ' | b'\0'))
            .ok_or(FormatError::Release)?;
        let release = std::str::from_utf8(&text[..end]).map_err(|_| FormatError::Release)?;
        // The release becomes part of a path.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+~".contains(c);
        if release.is_empty() || release.starts_with('.') || !release.chars().all(plain) {
            return Err(FormatError::Release);
        }
        let size = (0..4).rev().try_fold(0u64, |sum, index| {
            let byte = file
                .get(field::INIT_SIZE + index)
                .ok_or(FormatError::Magic)?;
            Ok(sum << 8 | u64::from(*byte))
        })?;
        Ok(Self {
            release: release.to_owned(),
            init_bytes: size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(version: u16, text: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 0x400];
        file[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        file[0x202..0x206].copy_from_slice(b"HdrS");
        file[0x206..0x208].copy_from_slice(&version.to_le_bytes());
        file[0x20e..0x210].copy_from_slice(&0x180u16.to_le_bytes());
        file[0x211] = 1;
        file[0x236] = 1;
        file[0x260..0x264].copy_from_slice(&0x0234_5000u32.to_le_bytes());
        file[0x380..0x380 + text.len()].copy_from_slice(text);
        file
    }

    #[test]
    fn header_tells_release_and_size() {
        let file = kernel(0x20f, b"6.1.0-56-amd64 (someone@somewhere) #1 SMP");
        assert_eq!(
            BzImage::parse(&file),
            Ok(BzImage {
                release: "6.1.0-56-amd64".into(),
                init_bytes: 0x0234_5000
            })
        );
    }

    #[test]
    fn other_files_are_refused_for_what_they_are() {
        assert_eq!(BzImage::parse(b""), Err(FormatError::Magic));
        assert_eq!(BzImage::parse(&[0; 4096]), Err(FormatError::Magic));
        let good = kernel(0x20f, b"6.1 x");
        for length in 0..0x380 {
            assert!(BzImage::parse(&good[..length]).is_err(), "{length}");
        }
        assert_eq!(
            BzImage::parse(&kernel(0x204, b"2.6 x")),
            Err(FormatError::Version(0x204))
        );
        for text in [b"../../x y".as_slice(), b" x", b"a/b c", b"\xff\xff d"] {
            assert_eq!(
                BzImage::parse(&kernel(0x20f, text)),
                Err(FormatError::Release),
                "{text:?}"
            );
        }
        let mut narrow = good;
        narrow[0x236] = 0;
        assert_eq!(BzImage::parse(&narrow), Err(FormatError::Narrow));
    }
}
