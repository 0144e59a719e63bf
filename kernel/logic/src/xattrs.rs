//! Extended attributes of one file: pure logic.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The most bytes of a name, with its prefix (`XATTR_NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// The most bytes of a value (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = 1 << 16;
/// The most bytes of a list of names (`XATTR_LIST_MAX`).
pub const LIST_MAX: usize = 1 << 16;

/// The most attributes of a file, because each call searches their names. Linux has no such limit,
/// but lists no more than [`LIST_MAX`] bytes of names.
pub const MOST: usize = 1024;

/// The reason why an attribute cannot be set.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The attribute exists, and the call may only create it.
    Exists,
    /// The attribute does not exist, and the call may only replace it.
    Absent,
    /// The file has [`MOST`] attributes.
    TooMany,
    /// Memory is short.
    NoMemory,
}

/// The condition for setting an attribute.
#[derive(Copy, Clone, Debug, Default)]
pub struct When {
    /// Only if the attribute does not exist.
    pub create: bool,
    /// Only if the attribute exists.
    pub replace: bool,
}

/// An extended attribute: its name and its value.
#[derive(Debug)]
pub struct Attribute {
    /// The name, with its prefix.
    pub name: Box<[u8]>,
    /// The value.
    pub value: Box<[u8]>,
}

impl Attribute {
    /// Returns the approximate memory that the attribute takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.value.len()
    }

    /// Returns a copy, or `None` if memory is short.
    fn copy(&self) -> Option<Self> {
        let copy = |bytes: &[u8]| {
            let mut copy = Vec::new();
            copy.try_reserve_exact(bytes.len()).ok()?;
            copy.extend_from_slice(bytes);
            Some(copy.into_boxed_slice())
        };
        Some(Self {
            name: copy(&self.name)?,
            value: copy(&self.value)?,
        })
    }
}

/// The extended attributes of a file.
#[derive(Debug, Default)]
pub struct Xattrs {
    /// In the order of their creation.
    all: Vec<Attribute>,
}

impl Xattrs {
    fn find(&self, name: &[u8]) -> Option<usize> {
        self.all.iter().position(|one| *one.name == *name)
    }

    /// Returns the value of the attribute `name`, or `None` if it does not exist.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.find(name).map(|at| &*self.all[at].value)
    }

    /// Returns the value of the attribute `name` for modification in place, or `None` if the
    /// attribute does not exist.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut [u8]> {
        let at = self.find(name)?;
        Some(&mut self.all[at].value)
    }

    /// Returns the approximate memory that the attribute `name` takes, in bytes, or 0 if it does
    /// not exist.
    pub fn bytes_of(&self, name: &[u8]) -> usize {
        self.find(name).map_or(0, |at| self.all[at].bytes())
    }

    /// Sets the attribute `new` if `when` allows that. Returns the attribute of the same name that
    /// it replaces, or `None` if there was none.
    ///
    /// # Errors
    /// [`Refused`] with the reason, and `new` itself.
    pub fn set(
        &mut self,
        new: Attribute,
        when: When,
    ) -> Result<Option<Attribute>, (Refused, Attribute)> {
        match self.find(&new.name) {
            Some(_) if when.create => Err((Refused::Exists, new)),
            Some(at) => Ok(Some(core::mem::replace(&mut self.all[at], new))),
            None if when.replace => Err((Refused::Absent, new)),
            None if self.all.len() >= MOST => Err((Refused::TooMany, new)),
            None => {
                if self.all.try_reserve(1).is_err() {
                    return Err((Refused::NoMemory, new));
                }
                self.all.push(new);
                Ok(None)
            }
        }
    }

    /// Removes the attribute `name` and returns it, or `None` if it does not exist.
    pub fn remove(&mut self, name: &[u8]) -> Option<Attribute> {
        let at = self.find(name)?;
        Some(self.all.remove(at))
    }

    /// Returns the names of all attributes, the newest first, as Linux does.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().rev().map(|one| &*one.name)
    }

    /// Returns a copy of all attributes, or `None` if memory is short.
    pub fn copy(&self) -> Option<Self> {
        let mut all = Vec::new();
        all.try_reserve_exact(self.all.len()).ok()?;
        for one in &self.all {
            all.push(one.copy()?);
        }
        Some(Self { all })
    }

    /// Returns the approximate memory that all attributes take, in bytes.
    pub fn bytes(&self) -> usize {
        self.all.iter().map(Attribute::bytes).sum()
    }
}
