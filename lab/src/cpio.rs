//! An initramfs: a `newc` cpio archive, as the kernel's own documentation
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`) describes it.

use std::io::{self, Write};

/// Type bits of a directory in a mode.
const DIRECTORY: u32 = 0o040_000;
/// Type bits of a regular file in a mode.
const REGULAR: u32 = 0o100_000;
/// Type bits of a symbolic link in a mode.
const LINK: u32 = 0o120_000;

/// Writes members one after the other; parents must be added before what they hold.
#[derive(Debug)]
pub(crate) struct Archive<W: Write> {
    out: W,
    members: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, members: 0 }
    }

    pub(crate) fn directory(&mut self, path: &str) -> io::Result<()> {
        self.member(path, DIRECTORY | 0o755, &[])
    }

    pub(crate) fn file(&mut self, path: &str, permissions: u32, data: &[u8]) -> io::Result<()> {
        self.member(path, REGULAR | permissions, data)
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.member(path, LINK | 0o777, target.as_bytes())
    }

    /// Writes the end mark and gives the writer back.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.member("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn member(&mut self, path: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::other(format!("{path} is 4 GiB or longer"));
        let bytes = u32::try_from(data.len()).map_err(too_long)?;
        let name_bytes = u32::try_from(path.len() + 1).map_err(too_long)?;
        self.members += 1;
        let (inode, zero, links) = (self.members, 0_u32, 1_u32);
        let fields = [
            inode, mode, zero, zero, links, zero, bytes, zero, zero, zero, zero, name_bytes, zero,
        ];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(path.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(6 + 8 * 13 + path.len() + 1)?;
        self.out.write_all(data)?;
        self.pad(data.len())
    }

    /// Header and data each end on a multiple of four bytes.
    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out
            .write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_aligned_members_and_a_trailer() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("bin").expect("write to memory");
        archive
            .file("bin/a", 0o755, b"hello")
            .expect("write to memory");
        archive.link("bin/b", "a").expect("write to memory");
        let bytes = archive.finish().expect("write to memory");
        assert_eq!(bytes.len() % 4, 0);
        let mut offset = 0;
        let mut names = Vec::new();
        while offset < bytes.len() {
            let field = |index: usize| {
                let at = offset + 6 + 8 * index;
                let text = std::str::from_utf8(&bytes[at..at + 8]).expect("ASCII");
                usize::from_str_radix(text, 16).expect("hexadecimal")
            };
            assert_eq!(&bytes[offset..offset + 6], b"070701");
            let (data_bytes, name_bytes) = (field(6), field(11));
            let name = &bytes[offset + 110..offset + 110 + name_bytes - 1];
            names.push(String::from_utf8_lossy(name).into_owned());
            offset = (offset + 110 + name_bytes).next_multiple_of(4);
            offset = (offset + data_bytes).next_multiple_of(4);
        }
        assert_eq!(names, ["bin", "bin/a", "bin/b", "TRAILER!!!"]);
    }
}
