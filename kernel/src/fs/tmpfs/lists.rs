//! Access lists of files in memory, which are stored as extended attributes.

use super::{Attributes, Body, TmpNode};
use crate::fs::node::AttributeChange;
use crate::fs::xattr::Extended;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering};
use logic::access_list::{self, ACCESS, DEFAULT, List};
use logic::credentials::attributes::Beginning;
use logic::credentials::{Credentials, Owned, Wanted};
use logic::errno::Errno;
use logic::xattrs::{Attribute, When};

const HAS_ACCESS: u8 = 1;
const HAS_DEFAULT: u8 = 2;

/// The most bytes of a list: 500 entries. A list is searched with the attributes locked.
const MOST_BYTES: usize = 4 + 500 * 8;

/// A hint which access lists (POSIX ACLs) a file has, as bits. They change with the file's
/// attributes locked. A caller that needs certainty looks again with the attributes locked.
#[derive(Debug)]
pub(super) struct Lists(AtomicU8);

impl Lists {
    /// Returns the state of a file without access lists.
    pub(super) const fn none() -> Self {
        Self(AtomicU8::new(0))
    }

    // Relaxed (all): the bits are hints.

    /// Returns whether the file has an access list, which gives rights to further users and groups.
    #[inline]
    pub(super) fn has_access(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HAS_ACCESS != 0
    }

    /// Returns whether the directory has a default list, for files that are made in it.
    #[inline]
    fn has_default(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HAS_DEFAULT != 0
    }

    /// Copies the bits of `other`, the hint of another file. The caller has locked the attributes
    /// of that file.
    pub(super) fn copy_from(&self, other: &Self) {
        self.0
            .store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Records in the hint whether the file has (`has`) the default list (if `default`) or the
    /// access list.
    fn note(&self, default: bool, has: bool) {
        let bit = if default { HAS_DEFAULT } else { HAS_ACCESS };
        if has {
            self.0.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// Returns the name of the attribute with the default list (if `default`) or the access list.
const fn name(default: bool) -> &'static [u8] {
    if default { DEFAULT } else { ACCESS }
}

/// Copies bytes to the heap. Fails with `ENOMEM`.
fn copy(bytes: &[u8]) -> Result<Box<[u8]>, Errno> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())
        .map_err(|_| Errno::ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy.into_boxed_slice())
}

impl Attributes {
    /// Returns the access list in the attribute `name`, or `None` if the file does not have it.
    fn list(&self, name: &[u8]) -> Option<&[u8]> {
        self.extended.as_ref()?.all().get(name)
    }

    /// Makes the access list agree with the permission bits.
    pub(super) fn adjust_list(&mut self) {
        let permissions = self.permissions;
        let list = self.extended.as_mut().and_then(|all| all.get_mut(ACCESS));
        if let Some(list) = list {
            access_list::set_permissions(list, permissions);
        }
    }
}

impl TmpNode {
    /// Checks by the access list whether `who` may use the file as `wanted`.
    ///
    /// # Errors
    /// Fails with `EACCES` if `who` may not.
    #[cold]
    pub(super) fn may_by_list(&self, who: &Credentials, wanted: Wanted) -> Result<(), Errno> {
        let attributes = self.attributes.lock();
        let owned = Owned {
            directory: matches!(self.body, Body::Directory(_)),
            regular: matches!(self.body, Body::Regular(_) | Body::Huge(_)),
            permissions: attributes.permissions,
            uid: attributes.uid,
            gid: attributes.gid,
        };
        match attributes.list(ACCESS) {
            Some(list) => List::checked(list).check(who, wanted, &owned),
            None => who.may(wanted, &owned),
        }
    }

    /// Sets the default list (if `default`) or the access list to `list`. With `None`, removes it.
    /// Also sets the permission bits of `change`.
    ///
    /// # Errors
    /// Fails with `EROFS`, and with `ENOSPC` for too many entries. Fails with `EAGAIN` if the
    /// attributes on which `change` was based have changed. Otherwise fails as [`Extended::set`].
    pub(super) fn put_list(
        &self,
        default: bool,
        list: Option<Box<[u8]>>,
        change: &AttributeChange,
    ) -> Result<(), Errno> {
        self.fs.volume.check_writable()?;
        if list.as_ref().is_some_and(|list| list.len() > MOST_BYTES) {
            return Err(Errno::ENOSPC);
        }
        self.keep();
        let mut fresh: Option<Box<Extended>> = list.is_some().then(Box::default);
        let new = match list {
            Some(value) => Some(Attribute {
                name: copy(name(default))?,
                value,
            }),
            None => None,
        };
        let mut attributes = self.attributes.lock();
        change.check(attributes.permissions, attributes.uid, attributes.gid)?;
        let has = new.is_some();
        let (gone, result) = match new {
            Some(new) => {
                let fresh = &mut fresh;
                let all = attributes
                    .extended
                    .get_or_insert_with(|| fresh.take().unwrap_or_default());
                all.set(new, When::default())
            }
            None => {
                let all = attributes.extended.as_mut();
                (all.and_then(|all| all.remove(name(default))), Ok(()))
            }
        };
        if result.is_ok() {
            self.lists.note(default, has);
            if let Some(permissions) = change.permissions {
                attributes.permissions = permissions & 0o7777;
            }
            attributes.changed = super::Timestamp::now();
        }
        drop(attributes);
        drop((gone, fresh));
        result
    }

    /// Gives the new node `node`, which will be entered in this directory, the lists that it
    /// inherits.
    ///
    /// # Errors
    /// Fails with `ENOMEM` or `ENOSPC`.
    #[inline]
    pub(super) fn bequeath(&self, node: &Self, beginning: Beginning) -> Result<(), Errno> {
        if self.lists.has_default() {
            return self.bequeath_list(node, beginning);
        }
        Ok(())
    }

    #[cold]
    fn bequeath_list(&self, node: &Self, beginning: Beginning) -> Result<(), Errno> {
        if matches!(node.body, Body::Symlink(_)) {
            return Ok(());
        }
        let mut list = {
            let attributes = self.attributes.lock();
            match attributes.list(DEFAULT) {
                Some(list) => copy(list)?,
                None => return Ok(()),
            }
        };
        if matches!(node.body, Body::Directory(_)) {
            node.put_list(true, Some(copy(&list)?), &AttributeChange::default())?;
        }
        let permissions = access_list::inherit(&mut list, beginning.permissions);
        let change = AttributeChange {
            permissions: Some(permissions),
            ..AttributeChange::default()
        };
        let plain = List::checked(&list).is_plain();
        node.put_list(false, (!plain).then_some(list), &change)
    }
}
