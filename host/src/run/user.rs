//! The option `--user`: the user of the guest's program. Names are looked up in the guest's
//! `/etc/passwd` and `/etc/group`.

use super::root::Root;
use crate::archive::{GuestPath, Initramfs, Node, Source};
use crate::failure::Failure;
use crate::text::one_line;
use ebb_wire::user::GROUPS_MAX;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::str::FromStr;

/// The argument of `--user`: a user and perhaps a group, each a name or a number. They are not
/// looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserChoice {
    user: String,
    group: Option<String>,
    /// Whether the image names the user. A number that is in no `/etc/passwd` then has the group 0
    /// and the home `/`, as Docker does it.
    is_images: bool,
}

impl FromStr for UserChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        if user.is_empty() || group == Some("") || group.is_some_and(|group| group.contains(':')) {
            return Err("it is NAME or UID, and may have :GROUP or :GID behind it".into());
        }
        Ok(Self {
            user: user.to_owned(),
            group: group.map(str::to_owned),
            is_images: false,
        })
    }
}

/// The most bytes of `/etc/passwd` or `/etc/group`.
const LIST_MAX: u64 = 16 << 20;

/// A line with more bytes is ignored.
const LINE_MAX: usize = 64 << 10;

/// The most fields into which a line is split. A line of `/etc/passwd` has seven.
const FIELDS_MAX: usize = 8;

/// A user of the guest, with numbers, groups and home directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Supplementary groups.
    groups: Vec<u32>,
    name: String,
    /// The home directory, an absolute path.
    pub(super) home: OsString,
    shell: OsString,
}

/// Parses the number of a user or group. Returns `None` if `text` is not decimal digits, too large,
/// or −1.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.filter(|number| *number != u32::MAX)
}

/// Returns the fields of each line of `/etc/passwd` or `/etc/group`. Skips lines without a name, or
/// without a number in one of the fields `numbers`.
fn lines<'a>(text: &'a str, numbers: &'static [usize]) -> impl Iterator<Item = Vec<&'a str>> {
    let lines = text.lines().filter(|line| line.len() <= LINE_MAX);
    let lines = lines.map(|line| line.splitn(FIELDS_MAX, ':').collect());
    lines.filter(|fields: &Vec<&str>| {
        let is_number = |at: &usize| fields.get(*at).copied().and_then(number).is_some();
        !fields[0].is_empty() && numbers.iter().all(is_number)
    })
}

fn users(text: &str) -> impl Iterator<Item = Vec<&str>> {
    lines(text, &[2, 3])
}

fn groups(text: &str) -> impl Iterator<Item = Vec<&str>> {
    lines(text, &[2])
}

/// Returns whether `path` lies in a system folder, where no user has a home.
fn is_of_system(path: &[u8]) -> bool {
    let first = path.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
    first.starts_with(b"lib")
        || [
            "bin", "boot", "dev", "etc", "proc", "run", "sbin", "sys", "tmp", "usr",
        ]
        .iter()
        .any(|known| known.as_bytes() == first)
}

impl UserChoice {
    /// Returns the same choice as that of an image. It differs for a number that is in no
    /// `/etc/passwd`, which has the group 0 and the home `/`.
    pub(super) fn of_image(self) -> Self {
        Self {
            is_images: true,
            ..self
        }
    }

    /// Finds the user in the texts of `/etc/passwd` and `/etc/group`, each `None` if the guest does
    /// not have it.
    ///
    /// A number needs no entry in these files.
    ///
    /// # Errors
    /// Fails with a usage error if a name is in neither file.
    fn find(&self, passwd: Option<&str>, group: Option<&str>) -> Result<User, Failure> {
        let shown = match &self.group {
            Some(group) => format!("{}:{group}", self.user),
            None => self.user.clone(),
        };
        let refuse = |what: String| Failure::Usage(format!("--user {}: {what}", one_line(&shown)));
        let absent = |kind: &str, name: &str, path: &str, file: Option<&str>| {
            let why = if file.is_some() {
                ""
            } else {
                ", which is not there"
            };
            refuse(format!(
                "no {kind} `{}` in the guest's {path}{why}; a number needs none",
                one_line(name)
            ))
        };
        let uid = number(&self.user);
        let meant = |fields: &Vec<&str>| match (fields.as_slice(), uid) {
            ([_, _, known, _, ..], Some(uid)) => number(known) == Some(uid),
            ([name, ..], None) => *name == self.user,
            _ => false,
        };
        let entry = passwd.and_then(|text| users(text).find(meant));
        let field = |at: usize| entry.as_ref().and_then(|fields| fields.get(at)).copied();
        let uid = uid
            .or_else(|| field(2).and_then(number))
            .ok_or_else(|| absent("user", &self.user, "/etc/passwd", passwd))?;
        let gid = match &self.group {
            None => {
                let otherwise = if self.is_images { 0 } else { uid };
                field(3).and_then(number).unwrap_or(otherwise)
            }
            Some(name) => {
                let known = || groups(group?).find(|fields| fields[0] == *name);
                let listed = || number(known()?.get(2)?);
                number(name)
                    .or_else(listed)
                    .ok_or_else(|| absent("group", name, "/etc/group", group))?
            }
        };
        let name = field(0).map_or_else(|| uid.to_string(), str::to_owned);
        let is_member = |fields: &Vec<&str>| {
            let members = fields.get(3).map(|members| members.split(','));
            members.is_some_and(|mut members| members.any(|member| member == name))
        };
        let of_user = group.into_iter().flat_map(groups).filter(is_member);
        let mut all: Vec<u32> = of_user
            .filter_map(|fields| number(fields.get(2)?))
            .chain([gid])
            .take(GROUPS_MAX)
            .collect();
        all.sort_unstable();
        all.dedup();
        let given = |at: usize| field(at).filter(|text| text.starts_with('/'));
        let own_home = || match self.is_images {
            true => "/".to_owned(),
            false => format!("/home/{uid}"),
        };
        let home = given(5).map_or_else(own_home, str::to_owned);
        Ok(User {
            uid,
            gid,
            groups: all,
            name,
            home: home.into(),
            shell: given(6).unwrap_or("/bin/sh").into(),
        })
    }

    /// Finds the user and the group in the guest's `/etc/passwd` and `/etc/group`: those packed in
    /// `tree`, or else those of `root`. A file that is missing, cannot be read or exceeds 16 MiB
    /// counts as absent. A number needs no entry in these files.
    ///
    /// # Errors
    /// Fails with a usage error if a name of a user or group has no entry.
    pub(super) fn look_up(
        &self,
        tree: &Initramfs,
        root: Option<&mut Root>,
    ) -> Result<User, Failure> {
        let mut root = root;
        let mut read = |path: &str| -> Option<String> {
            let packed = GuestPath::parse(path.as_bytes()).ok()?;
            let bytes = match tree.get(&packed) {
                Some(Node::File {
                    source: Source::Bytes(bytes),
                    ..
                }) => bytes.clone(),
                Some(Node::File {
                    source: Source::Host(file),
                    ..
                }) => file.bytes(LIST_MAX).ok()?,
                _ => root.as_mut()?.content(&path.as_bytes()[1..])?,
            };
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (passwd, group) = (read("/etc/passwd"), read("/etc/group"));
        self.find(passwd.as_deref(), group.as_deref())
    }
}

impl User {
    /// Returns the bytes of the file that tells the guest's kernel its user ([`ebb_wire::user`]):
    /// the numbers of the user, its group and all its groups.
    pub(super) fn to_file(&self) -> Vec<u8> {
        let mut text = format!("{} {}", self.uid, self.gid);
        for group in &self.groups {
            text.push_str(&format!(" {group}"));
        }
        text.push('\0');
        text.into_bytes()
    }

    /// Returns the names and values of the environment variables that describe the user: `HOME`,
    /// `LOGNAME`, `SHELL` and `USER`.
    pub(super) fn variables(&self) -> [(&'static str, &OsStr); 4] {
        let name = OsStr::new(&self.name);
        [
            ("HOME", &self.home),
            ("LOGNAME", name),
            ("SHELL", &self.shell),
            ("USER", name),
        ]
    }

    /// Makes the user the owner of the packed files of the host that other users may not read. Adds
    /// the user's home directory to `tree` if none is packed, except `/`, and makes the user its
    /// owner.
    ///
    /// If the guest sees that directory of the host through its root, [`super::pack::leave_to`]
    /// removes the added one again.
    ///
    /// # Errors
    /// Fails if `tree` has a file at a path that must be a directory.
    pub(super) fn settle(&self, tree: &mut Initramfs) -> Result<(), Failure> {
        tree.give_private_files([self.uid, self.gid]);
        let home = self.home.clone().into_vec();
        // `/` stays root's. A directory that exists only for the packed program counts as none,
        // unless it is a system folder.
        if let Ok(path) = GuestPath::parse(&home)
            && (tree.get(&path).is_none()
                || tree.is_implied(&path) && !is_of_system(path.as_bytes()))
        {
            tree.add(path.clone(), Node::Directory { mode: 0o700 })?;
            tree.give(path, [self.uid, self.gid]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nann:x:1001:100:Ann:/home/ann:/bin/zsh\n\
                          bob:x:?:1::/b:\n::1003:1003::/e:\n\
                          bob:x:1002:1002::/nonexistent:\nodd:x:?:1\nlow:x:1004:?::/l:\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:\nclub:x:2001:bob,ann\ndisk:x:6:bob\n\
                         :x:7:ann\nbad:x:?:ann\nempty:x:8:\n";

    fn find(text: &str) -> Result<User, String> {
        let choice: UserChoice = text.parse()?;
        let found = choice.find(Some(PASSWD), Some(GROUP));
        found.map_err(|failure| failure.to_string())
    }

    #[test]
    fn names_and_numbers_are_looked_up() {
        let ann = find("ann").unwrap();
        assert_eq!(ann.to_file(), b"1001 100 100 2001\0");
        assert_eq!(ann.variables()[0], ("HOME", OsStr::new("/home/ann")));
        assert_eq!(ann.variables()[2], ("SHELL", OsStr::new("/bin/zsh")));
        assert_eq!(find("1001").unwrap(), ann);
        assert_eq!(find("bob").unwrap().to_file(), b"1002 1002 6 1002 2001\0");
        assert_eq!(find("bob:club").unwrap().to_file(), b"1002 2001 6 2001\0");
        assert_eq!(find("ann:7").unwrap().to_file(), b"1001 7 7 2001\0");
        let unlisted = find("4000").unwrap();
        assert_eq!(unlisted.to_file(), b"4000 4000 4000\0");
        assert_eq!(unlisted.variables()[3], ("USER", OsStr::new("4000")));
        assert_eq!(unlisted.home, "/home/4000");
        // An image's number is of the group 0.
        let choice: UserChoice = "4000".parse().unwrap();
        let of_image = choice.of_image().find(Some(PASSWD), Some(GROUP)).unwrap();
        assert_eq!(of_image.to_file(), b"4000 0 0\0");
        assert_eq!(of_image.home, "/");
        let choice: UserChoice = "1001".parse().unwrap();
        let known = choice.of_image().find(Some(PASSWD), Some(GROUP)).unwrap();
        assert_eq!(known.to_file(), ann.to_file());
        // Lines without a name are ignored.
        assert_eq!(find("1003").unwrap().to_file(), b"1003 1003 1003\0");
    }

    #[test]
    fn long_lines_cost_little() {
        let text = format!("ann:x:1:1{}\n", ":".repeat(1000));
        let fields: Vec<_> = lines(&text, &[]).collect();
        assert_eq!((fields.len(), fields[0].len()), (1, FIELDS_MAX));
        let line = |len: usize| {
            let start = "ann:x:1:1:";
            let rest = "x".repeat(len - start.len());
            format!("{start}{rest}\nbob:x:2:2::/b:/s\n")
        };
        assert_eq!(lines(&line(LINE_MAX), &[2]).count(), 2);
        assert_eq!(lines(&line(LINE_MAX + 1), &[2]).count(), 1);
    }

    #[test]
    fn what_is_packed_is_given_where_it_was_asked_for() {
        let mut tree = Initramfs::default();
        let path = |text: &str| GuestPath::parse(text.as_bytes()).unwrap();
        let file = |mode| Node::File {
            mode,
            source: Source::Bytes(Vec::new()),
        };
        tree.add(path("/etc/passwd"), file(0o644)).unwrap();
        tree.add(path("/opt/data/file"), file(0o600)).unwrap();
        tree.give_all([1001, 100]);
        tree.add(path("/home/ann/program"), file(0o755)).unwrap();
        find("ann").unwrap().settle(&mut tree).unwrap();
        let own = Some([1001, 100]);
        for (text, owner) in [
            ("/etc", None),
            ("/etc/passwd", None),
            ("/opt/data", None),
            ("/opt/data/file", own),
            ("/home", None),
            ("/home/ann", own),
            ("/home/ann/program", None),
        ] {
            assert_eq!(tree.owner(&path(text)), owner, "{text}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (text, said) in [
            (
                "frob",
                "--user frob: no user `frob` in the guest's /etc/passwd",
            ),
            (
                "ann:frobs",
                "--user ann:frobs: no group `frobs` in the guest's /etc/group",
            ),
            ("odd", "no user `odd`"),
            ("low", "no user `low`"),
            ("ann:bad", "no group `bad`"),
            ("4294967295", "no user `4294967295`"),
            ("-1", "no user `-1`"),
            ("", "it is NAME or UID"),
            ("ann:", "it is NAME or UID"),
            ("a:b:c", "it is NAME or UID"),
        ] {
            let error = find(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        let choice: UserChoice = "ann".parse().unwrap();
        let error = choice.find(None, None).unwrap_err().to_string();
        assert!(error.contains("/etc/passwd, which is not there"), "{error}");
    }
}
