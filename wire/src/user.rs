//! Who the program runs as, in a file that the guest starts with. Names were looked up by the host.

/// The file: `UID GID GROUP…`, decimal numbers with a blank between them, and a NUL. Without it the program is root.
pub const USER: &str = "/.ebb/user";

/// The most supplementary groups that Linux lets a process have.
pub const GROUPS_MAX: usize = 65_536;

/// A user, by numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Further groups, as they are written.
    groups: &'a str,
}

/// A number that a user or a group can have: all but −1.
fn number(word: &str) -> Option<u32> {
    word.parse().ok().filter(|number| *number != u32::MAX)
}

impl<'a> User<'a> {
    /// Reads what the file says, without the NUL.
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

    /// The supplementary groups.
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
