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
pub struct Member {
    /// Range of the member's path in the archive, without the NUL.
    pub name: Range<usize>,
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
    /// The bytes of the archive from the offset `base` on.
    rest: &'a [u8],
    base: usize,
    at: usize,
    finished: bool,
}

impl<'a> Members<'a> {
    /// Returns an iterator over the members of `archive`.
    pub fn new(archive: &'a [u8]) -> Self {
        Self::resume(archive, 0)
    }

    /// Returns an iterator over the members from `offset` on of an archive whose bytes from there
    /// on are `rest`. The ranges of members, and the offsets of errors, count from the archive's
    /// start.
    pub fn resume(rest: &'a [u8], offset: usize) -> Self {
        Self {
            rest,
            base: offset,
            at: offset,
            finished: false,
        }
    }

    /// Returns the offset of the first byte of the archive that this iterator has not passed.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns the bytes of the archive at the offsets `start..end`. Returns `None` if they do not
    /// lie in it.
    fn get(&self, start: usize, end: usize) -> Option<&'a [u8]> {
        self.rest
            .get(start.checked_sub(self.base)?..end.checked_sub(self.base)?)
    }

    fn parse(&self) -> Result<(Member, usize), Error> {
        let start = self.at;
        let header = self.get(start, start.saturating_add(HEADER));
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
            .get(name_start, name_end)
            .ok_or(Error::Truncated(start))?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        if name.is_empty() {
            return Err(Error::BadName(start));
        }
        let name = name_start..name_start + name.len();
        let data_start = name_end.next_multiple_of(4);
        let data_end = data_start
            .checked_add(size as usize)
            .ok_or(Error::Truncated(start))?;
        if data_end > self.base.saturating_add(self.rest.len()) {
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

impl Iterator for Members<'_> {
    type Item = Result<Member, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        // Each iteration advances `at` by at least one, so the archive's length bounds the whole
        // walk.
        let rest = self.rest.get(self.at - self.base..).unwrap_or_default();
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
                if self.get(member.name.start, member.name.end) == Some(b"TRAILER!!!") {
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
        assert_eq!(&archive[members[0].name.clone()], b"bin/sh");
        assert_eq!(&archive[members[0].data.clone()], b"hello");
        assert_eq!(
            (members[0].mode, members[0].inode, members[0].rdev),
            (0o100_755, 7, (5, 1))
        );
        assert_eq!(&archive[members[1].name.clone()], b"tmp");
        assert!(members[1].data.is_empty());
    }

    #[test]
    fn a_padded_name_ends_at_its_first_nul() {
        let archive = member(b"a\0\0\0\0", 0o100_644, b"x");
        let first = Members::new(&archive).next().unwrap().unwrap();
        assert_eq!(&archive[first.name], b"a");
        assert_eq!(&archive[first.data], b"x");
    }

    #[test]
    fn nuls_between_members_are_passed_over() {
        let mut archive = member(b"a", 0o100_644, b"x");
        archive.resize(4096, 0);
        archive.extend(member(b"b", 0o100_644, b"y"));
        archive.resize(8192, 0);
        let names: Vec<_> = Members::new(&archive)
            .map(|member| &archive[member.unwrap().name])
            .collect();
        assert_eq!(names, [b"a", b"b"]);
    }

    #[test]
    fn a_walk_that_is_resumed_finds_the_same_members() {
        let mut archive = member(b"a", 0o100_644, b"xyz");
        archive.resize(4096, 0);
        archive.extend(member(b"bc", 0o100_644, b"y"));
        archive.extend(b"rubbish");
        let all: Vec<_> = Members::new(&archive).collect();
        assert_eq!(all.len(), 3);
        assert!(matches!(all[2], Err(Error::Truncated(at)) if at > 4096));
        let (mut resumed, mut at) = (Vec::new(), 0);
        while resumed.len() < all.len() {
            let mut members = Members::resume(&archive[at..], at);
            resumed.extend(members.next());
            at = members.offset();
        }
        assert_eq!(resumed, all);
        // The zeros between members may be left out.
        let behind = Members::resume(&archive[4096..], 4096).next();
        assert_eq!(behind.as_ref(), Some(&all[1]));
        let end = Members::resume(&[], archive.len()).next();
        assert_eq!(end, None);
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
