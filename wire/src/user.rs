//! The user and groups of the program, in a file of the initramfs. The host has already turned
//! names into numbers.

/// The file of the initramfs with the user and groups of the program: `UID GID GROUP…`, decimal
/// numbers separated by single spaces, and a NUL. If the file does not exist, the program runs as
/// root.
pub const USER: &str = "/.ebb/user";

/// The largest number of supplementary groups that Linux allows a process.
pub const GROUPS_MAX: usize = 65_536;

/// The user and groups of a process, as numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// The user ID.
    pub uid: u32,
    /// The ID of the primary group.
    pub gid: u32,
    /// The supplementary groups, as decimal numbers in the file's text.
    groups: &'a str,
}

/// Reads a user or group ID. Returns `None` if `word` is not a 32-bit number or is −1.
fn number(word: &str) -> Option<u32> {
    word.parse().ok().filter(|number| *number != u32::MAX)
}

impl<'a> User<'a> {
    /// Reads the contents of the file [`USER`], without the NUL. Returns `None` if the text has
    /// fewer than two numbers, if an ID is not a 32-bit number or is 2^32 − 1, or if there are more
    /// than [`GROUPS_MAX`] groups.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok()?;
        let (uid, rest) = text.split_once(' ')?;
        let (gid, groups) = rest.split_once(' ').unwrap_or((rest, ""));
        let words = groups.split_ascii_whitespace();
        let known = words.clone().all(|word| number(word).is_some());
        let few = words.count() <= GROUPS_MAX;
        (known && few).then_some(())?;
        Some(Self {
            uid: number(uid)?,
            gid: number(gid)?,
            groups,
        })
    }

    /// Returns the IDs of the supplementary groups, in the order of the file.
    pub fn groups(&self) -> impl Iterator<Item = u32> + 'a {
        self.groups.split_ascii_whitespace().filter_map(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn users_are_read_as_they_are_written() {
        let user = User::parse(b"1000 100 24 27").unwrap();
        assert_eq!((user.uid, user.gid), (1000, 100));
        assert_eq!(user.groups().collect::<Vec<_>>(), [24, 27]);
        let alone = User::parse(b"7 8").unwrap();
        assert_eq!(alone.groups().count(), 0);
        for bad in [&b""[..], b"7", b"7 x", b"7 8 x", b"-1 0", b"4294967295 0"] {
            assert_eq!(User::parse(bad), None);
        }
    }
}
