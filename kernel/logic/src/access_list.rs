//! Access lists of files (POSIX.1e), in the format of `system.posix_acl_access` and
//! `system.posix_acl_default`. Pure logic.
//!
//! A list is kept as the bytes of the attribute: a version, then 8 bytes for each entry.
//! [`List::read`] checks them. All changes of a checked list result in a valid list.

use crate::credentials::{Credentials, Owned, Wanted};
use crate::errno::Errno;

/// The name of the extended attribute that holds the access list of a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The name of the extended attribute that holds the list that new files in a directory inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;
const RIGHTS: u32 = 7;
/// The ID in an entry that names no user and no group.
const NO_ID: u32 = u32::MAX;

/// The subject of an entry. Entries are in this order.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner = 1,
    User = 2,
    OwningGroup = 4,
    Group = 8,
    Mask = 16,
    Other = 32,
}

/// An entry of a list: a subject and its rights.
#[derive(Copy, Clone, Debug)]
struct Entry {
    tag: Tag,
    rights: u32,
    /// The ID of the user or the group.
    id: u32,
}

impl Entry {
    fn read(bytes: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let number = half(0)?;
        let tag = [
            Tag::Owner,
            Tag::User,
            Tag::OwningGroup,
            Tag::Group,
            Tag::Mask,
            Tag::Other,
        ]
        .into_iter()
        .find(|tag| *tag as u16 == number)?;
        Some(Self {
            tag,
            rights: half(2)?.into(),
            id: u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?),
        })
    }

    /// Returns the position of the entry's rights in a file's permission bits: the number of the
    /// lowest bit. Returns `None` if the permission bits do not contain them.
    fn shift(self) -> Option<u32> {
        match self.tag {
            Tag::Owner => Some(6),
            Tag::OwningGroup => Some(3),
            Tag::Other => Some(0),
            Tag::User | Tag::Group | Tag::Mask => None,
        }
    }
}

/// A file's POSIX access list: the bytes of the extended attribute, which [`List::read`] has
/// accepted.
#[derive(Copy, Clone, Debug)]
pub struct List<'a>(&'a [u8]);

impl<'a> List<'a> {
    /// Checks `bytes`, the value of an attribute, and returns the list. Returns `None` for a list
    /// without entries, which means that the file has no list.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the version is unknown. `EINVAL` if `bytes` are no list, or if entries are
    /// missing, duplicate or out of order.
    pub fn read(bytes: &'a [u8]) -> Result<Option<Self>, Errno> {
        let version = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        if version.ok_or(Errno::EINVAL)? != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        let list = Self(bytes);
        let entries = &bytes[HEADER..];
        if !entries.len().is_multiple_of(ENTRY) {
            return Err(Errno::EINVAL);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let mut last: Option<Tag> = None;
        let (mut has_group, mut has_other, mut named, mut masked) = (false, false, false, false);
        for bytes in entries.chunks_exact(ENTRY) {
            let entry = Entry::read(bytes).ok_or(Errno::EINVAL)?;
            let repeats = matches!(entry.tag, Tag::User | Tag::Group);
            let in_order = match last {
                None => entry.tag == Tag::Owner,
                Some(last) => last < entry.tag || last == entry.tag && repeats,
            };
            if !in_order || entry.rights & !RIGHTS != 0 || repeats && entry.id == NO_ID {
                return Err(Errno::EINVAL);
            }
            named |= repeats;
            masked |= entry.tag == Tag::Mask;
            has_group |= entry.tag == Tag::OwningGroup;
            has_other |= entry.tag == Tag::Other;
            last = Some(entry.tag);
        }
        if !has_group || !has_other || named && !masked {
            return Err(Errno::EINVAL);
        }
        Ok(Some(list))
    }

    /// Wraps `bytes`, which [`Self::read`] must have accepted before.
    pub const fn checked(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn entries(self) -> impl Iterator<Item = Entry> + 'a {
        self.0[HEADER..].chunks_exact(ENTRY).filter_map(Entry::read)
    }

    fn mask(self) -> Option<u32> {
        let mut entries = self.entries();
        Some(entries.find(|entry| entry.tag == Tag::Mask)?.rights)
    }

    /// Returns the permission bits that a file with this list shows. If the list has a mask, the
    /// bits of the group are the mask, else the rights of the owning group.
    pub fn permissions(self) -> u32 {
        let mut bits = 0;
        for entry in self.entries() {
            if let Some(shift) = entry.shift() {
                bits |= entry.rights << shift;
            }
        }
        match self.mask() {
            Some(mask) => bits & !0o070 | mask << 3,
            None => bits,
        }
    }

    /// Returns whether permission bits alone can represent the list.
    pub fn is_plain(self) -> bool {
        self.entries().all(|entry| entry.shift().is_some())
    }

    /// Returns whether the list grants `who` the access in `wanted` to a file with the attributes
    /// `owned`, which `who` does not own.
    fn grants(self, who: &Credentials, wanted: Wanted, owned: &Owned) -> bool {
        let has = |rights: u32| wanted.0 & RIGHTS & !rights == 0;
        let mut in_a_group = false;
        for entry in self.entries() {
            let meant = match entry.tag {
                Tag::User => who.users.file == entry.id,
                Tag::OwningGroup => who.is_in_group(owned.gid),
                Tag::Group => who.is_in_group(entry.id),
                Tag::Other => return !in_a_group && has(entry.rights),
                Tag::Owner | Tag::Mask => false,
            };
            if !meant {
                continue;
            }
            // A group without the rights leaves the decision to another group.
            in_a_group |= entry.tag != Tag::User;
            if entry.tag == Tag::User || has(entry.rights) {
                return has(entry.rights & self.mask().unwrap_or(RIGHTS));
            }
        }
        false
    }

    /// Checks whether `who` has the access in `wanted` to a file with this list and the attributes
    /// `owned`.
    ///
    /// # Errors
    /// `EACCES` if neither the list, nor the permission bits, nor a capability grants the access.
    pub fn check(self, who: &Credentials, wanted: Wanted, owned: &Owned) -> Result<(), Errno> {
        let listed = who.users.file != owned.uid && owned.permissions & 0o070 != 0;
        if !listed {
            return who.may(wanted, owned);
        }
        if self.grants(who, wanted, owned) {
            return Ok(());
        }
        // These permission bits grant `who` nothing; its capabilities may.
        let executable = if owned.permissions & 0o111 != 0 {
            0o100
        } else {
            0
        };
        let denied = Owned {
            permissions: executable,
            uid: owned.uid,
            gid: owned.gid,
            ..*owned
        };
        who.may(wanted, &denied)
    }
}

/// Sets the rights of each entry of `list`, a checked list, to the result of `rights`.
fn change(list: &mut [u8], mut rights: impl FnMut(Entry) -> u32) {
    for place in list[HEADER..].chunks_exact_mut(ENTRY) {
        if let Some(entry) = Entry::read(place) {
            let [low, high, ..] = rights(entry).to_le_bytes();
            place[2..4].copy_from_slice(&[low, high]);
        }
    }
}

/// Writes `permissions`, the new permission bits of a file, into its access list `list`, which must
/// be a checked one. The entries of the owner and of others change. The bits of the group go to the
/// mask, or to the entry of the owning group if there is no mask.
pub fn set_permissions(list: &mut [u8], permissions: u32) {
    let masked = List(list).mask().is_some();
    change(list, |entry| match entry.tag {
        Tag::Owner => permissions >> 6 & RIGHTS,
        Tag::OwningGroup if !masked => permissions >> 3 & RIGHTS,
        Tag::Mask => permissions >> 3 & RIGHTS,
        Tag::Other => permissions & RIGHTS,
        _ => entry.rights,
    });
}

/// Turns `list`, the checked default list of a directory, into the access list of a file that is
/// created there with `permissions`. Returns the permission bits of the file. They include the bits
/// of `permissions` above `0o777`.
pub fn inherit(list: &mut [u8], permissions: u32) -> u32 {
    let masked = List(list).mask().is_some();
    change(list, |entry| match entry.tag {
        Tag::Owner => entry.rights & permissions >> 6,
        Tag::OwningGroup if !masked => entry.rights & permissions >> 3,
        Tag::Mask => entry.rights & permissions >> 3,
        Tag::Other => entry.rights & permissions,
        _ => entry.rights,
    });
    permissions & !0o777 | List(list).permissions()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    const FULL: &[(u16, u16, u32)] = &[
        (1, 6, NO_ID),
        (2, 7, 5),
        (2, 0, 6),
        (4, 4, NO_ID),
        (8, 6, 30),
        (16, 5, NO_ID),
        (32, 1, NO_ID),
    ];

    #[test]
    fn what_is_no_list_is_refused() {
        let read = |entries: &[_]| List::read(&list(entries)).map(|list| list.is_some());
        assert_eq!(read(FULL), Ok(true));
        assert_eq!(read(&[]), Ok(false));
        for at in [0, 3, 5, 6] {
            let mut without = FULL.to_vec();
            without.remove(at);
            assert_eq!(read(&without), Err(Errno::EINVAL), "without {at}");
        }
        for (at, entry) in [
            (0, (3, 6, 0)),
            (1, (2, 8, 5)),
            (1, (2, 7, NO_ID)),
            (4, (2, 7, 1)),
        ] {
            let mut wrong = FULL.to_vec();
            wrong[at] = entry;
            assert_eq!(read(&wrong), Err(Errno::EINVAL), "{entry:?} at {at}");
        }
        assert_eq!(List::read(&[2, 0, 0]).map(drop), Err(Errno::EINVAL));
        assert_eq!(List::read(&[3, 0, 0, 0]).map(drop), Err(Errno::EOPNOTSUPP));
        assert_eq!(List::read(&[2, 0, 0, 0, 1]).map(drop), Err(Errno::EINVAL));
    }

    #[test]
    fn bits_and_lists_agree() {
        let bytes = list(FULL);
        let full = List::checked(&bytes);
        assert_eq!((full.permissions(), full.is_plain()), (0o651, false));
        let mut changed = bytes.clone();
        set_permissions(&mut changed, 0o421);
        assert_eq!(List::checked(&changed).permissions(), 0o421);
        let mut inherited = bytes.clone();
        assert_eq!(inherit(&mut inherited, 0o1666), 0o1640);
        assert_eq!(List::checked(&inherited).permissions(), 0o640);
        let mut bytes = list(&[(1, 7, NO_ID), (4, 5, NO_ID), (32, 4, NO_ID)]);
        let plain = List::checked(&bytes);
        assert_eq!((plain.permissions(), plain.is_plain()), (0o754, true));
        assert_eq!(inherit(&mut bytes, 0o666), 0o644);
    }

    #[test]
    fn the_most_particular_entry_decides() {
        let bytes = list(FULL);
        let full = List::checked(&bytes);
        let owned = Owned {
            regular: true,
            permissions: full.permissions(),
            uid: 1,
            gid: 2,
            ..Owned::default()
        };
        let may = |uid: u32, gid: u32, wanted: u32| {
            let mut who = Credentials::root();
            who.users.file = uid;
            who.groups.file = gid;
            who.effective = crate::credentials::Capabilities(0);
            full.check(&who, Wanted(wanted), &owned).is_ok()
        };
        // The owner has the rights of the permission bits, a named user those that the mask leaves.
        assert!(may(1, 9, 6) && !may(1, 9, 1));
        assert!(may(5, 9, 5) && !may(5, 9, 2) && !may(6, 2, 4));
        // A single group has to grant all of `wanted`.
        assert!(may(9, 2, 4) && !may(9, 2, 2) && may(9, 30, 4) && !may(9, 30, 2));
        assert!(!may(9, 2, 1) && may(9, 9, 1) && !may(9, 9, 4));
    }
}
