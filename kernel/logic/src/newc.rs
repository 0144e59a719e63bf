//! The cpio "newc" format: pure logic, bounds-checked against hostile archives.
//!
//! A member is a header of 110 ASCII bytes, its name with a NUL, padding to 4 bytes, its data,
//! padding to 4 bytes. Numbers are eight hexadecimal digits. The member `TRAILER!!!` ends the
//! archive. NULs may separate members.

use core::ops::Range;

const HEADER: usize = 110;
const FIELDS: usize = 13;
const DIGITS: usize = 8;
/// The longest name that is accepted, with its padding: archives pad names so that data starts at a
/// page.
const MAX_NAME: usize = 4096 * 2;

/// A member of a cpio archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Path of the member, without the NUL.
    pub name: &'a [u8],
    /// The inode number, which all links of one file share.
    pub inode: u32,
    /// The type and the permission bits of the file (`st_mode`).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of the file's names.
    pub links: u32,
    /// Time of the last modification, in seconds since 1970.
    pub modified: u32,
    /// The major and minor device number, if the member is a device node.
    pub rdev: (u32, u32),
    /// Range of the member's data in the archive.
    pub data: Range<usize>,
}

/// The reason why an archive cannot be read further. The offset is that of a member.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No member starts at this offset.
    BadMagic(usize),
    /// A field of the header at this offset is no number.
    BadNumber(usize),
    /// The member at this offset extends beyond the archive's end.
    Truncated(usize),
    /// The name of the member at this offset is empty or too long.
    BadName(usize),
}

/// Iterates over the members of an archive. Ends at the trailer, at the archive's end or after the
/// first error.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    archive: &'a [u8],
    at: usize,
    finished: bool,
}

impl<'a> Members<'a> {
    /// Returns an iterator over the members of `archive`.
    pub fn new(archive: &'a [u8]) -> Self {
        Self {
            archive,
            at: 0,
            finished: false,
        }
    }

    fn parse(&self) -> Result<(Member<'a>, usize), Error> {
        let start = self.at;
        let header = self
            .archive
            .get(start..)
            .and_then(|rest| rest.get(..HEADER));
        let header = header.ok_or(Error::Truncated(start))?;
        // 070701 has no checksum; 070702 has one, which is ignored.
        if !matches!(&header[..6], b"070701" | b"070702") {
            return Err(Error::BadMagic(start));
        }
        let mut fields = [0_u32; FIELDS];
        for (field, digits) in fields.iter_mut().zip(header[6..].chunks_exact(DIGITS)) {
            *field = hexadecimal(digits).ok_or(Error::BadNumber(start))?;
        }
        let [
            inode,
            mode,
            uid,
            gid,
            links,
            modified,
            size,
            _,
            _,
            rmajor,
            rminor,
            name_size,
            _,
        ] = fields;
        let name_size = name_size as usize;
        if name_size == 0 || name_size > MAX_NAME {
            return Err(Error::BadName(start));
        }
        let name_start = start + HEADER;
        let name_end = name_start + name_size;
        let name = self
            .archive
            .get(name_start..name_end)
            .ok_or(Error::Truncated(start))?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        if name.is_empty() {
            return Err(Error::BadName(start));
        }
        let data_start = name_end.next_multiple_of(4);
        let data_end = data_start
            .checked_add(size as usize)
            .ok_or(Error::Truncated(start))?;
        if data_end > self.archive.len() {
            return Err(Error::Truncated(start));
        }
        let member = Member {
            name,
            inode,
            mode,
            uid,
            gid,
            links,
            modified,
            rdev: (rmajor, rminor),
            data: data_start..data_end,
        };
        Ok((member, data_end.next_multiple_of(4)))
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(value << 4 | digit)
    })
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<Member<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        // Each iteration advances `at` by at least one, so the archive's length bounds the whole
        // walk.
        let rest = self.archive.get(self.at..).unwrap_or_default();
        match rest.iter().position(|&byte| byte != 0) {
            Some(padding) => self.at += padding,
            None if self.at > 0 => {
                self.finished = true;
                return None;
            }
            None => {}
        }
        match self.parse() {
            Ok((member, next)) => {
                self.at = next;
                if member.name == b"TRAILER!!!" {
                    self.finished = true;
                    return None;
                }
                Some(Ok(member))
            }
            Err(error) => {
                self.finished = true;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::prelude::v1::*;

    fn member(name: &[u8], mode: u32, data: &[u8]) -> Vec<u8> {
        let fields = [
            7,
            mode,
            1,
            2,
            1,
            99,
            u32::try_from(data.len()).unwrap(),
            0,
            0,
            5,
            1,
            u32::try_from(name.len()).unwrap() + 1,
            0,
        ];
        let mut out = b"070701".to_vec();
        for field in fields {
            out.extend(format!("{field:08x}").into_bytes());
        }
        out.extend(name);
        out.push(0);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(data);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn members_are_found_in_order() {
        let mut archive = member(b"bin/sh", 0o100_755, b"hello");
        archive.extend(member(b"tmp", 0o040_755, b""));
        archive.extend(member(b"TRAILER!!!", 0, b""));
        archive.extend(b"rubbish behind the end");
        let members: Vec<_> = Members::new(&archive).map(Result::unwrap).collect();
        assert_eq!(members.len(), 2);
        assert_eq!(members[0].name, b"bin/sh");
        assert_eq!(&archive[members[0].data.clone()], b"hello");
        assert_eq!(
            (members[0].mode, members[0].inode, members[0].rdev),
            (0o100_755, 7, (5, 1))
        );
        assert_eq!(members[1].name, b"tmp");
        assert!(members[1].data.is_empty());
    }

    #[test]
    fn a_padded_name_ends_at_its_first_nul() {
        let archive = member(b"a\0\0\0\0", 0o100_644, b"x");
        let first = Members::new(&archive).next().unwrap().unwrap();
        assert_eq!(first.name, b"a");
        assert_eq!(&archive[first.data], b"x");
    }

    #[test]
    fn nuls_between_members_are_passed_over() {
        let mut archive = member(b"a", 0o100_644, b"x");
        archive.resize(4096, 0);
        archive.extend(member(b"b", 0o100_644, b"y"));
        archive.resize(8192, 0);
        let names: Vec<_> = Members::new(&archive)
            .map(|member| member.unwrap().name)
            .collect();
        assert_eq!(names, [b"a", b"b"]);
    }

    #[test]
    fn what_is_cut_off_is_named() {
        let archive = member(b"file", 0o100_644, b"0123456789");
        for length in 1..archive.len() - 2 {
            let error = Members::new(&archive[..length])
                .next()
                .unwrap()
                .unwrap_err();
            assert_eq!(error, Error::Truncated(0), "at {length}");
        }
        assert_eq!(Members::new(b"").next(), Some(Err(Error::Truncated(0))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            for item in Members::new(&bytes).flatten() {
                prop_assert!(bytes.get(item.data).is_some());
            }
            let mut archive = member(b"a/b", 0o100_644, &bytes);
            archive.extend(member(b"c", 0o100_644, b"tail"));
            for (at, byte) in changes {
                let at = at.index(archive.len());
                archive[at] = byte;
            }
            let mut end = 0;
            for item in Members::new(&archive).flatten() {
                prop_assert!(item.data.start >= end && item.data.end <= archive.len());
                end = item.data.end;
            }
        }
    }
}
