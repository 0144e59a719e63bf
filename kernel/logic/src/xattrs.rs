//! Extended attributes of one file: pure logic.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The longest name, with its prefix (`XATTR_NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// The largest value (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = 1 << 16;
/// The longest list of names (`XATTR_LIST_MAX`).
pub const LIST_MAX: usize = 1 << 16;

/// The most attributes of a file: each call looks through their names. Linux has no such number, and lists no more than
/// [`LIST_MAX`] bytes of names.
pub const MOST: usize = 1024;

/// Why an attribute cannot be set.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is there, and was to be made.
    Exists,
    /// It is not there, and was to be changed.
    Absent,
    /// There are [`MOST`].
    TooMany,
    /// Memory is short.
    NoMemory,
}

/// When an attribute is set.
#[derive(Copy, Clone, Debug, Default)]
pub struct When {
    /// Only if it is not there.
    pub create: bool,
    /// Only if it is there.
    pub replace: bool,
}

/// A name and its value.
#[derive(Debug)]
pub struct Attribute {
    /// The name, with its prefix.
    pub name: Box<[u8]>,
    /// The value.
    pub value: Box<[u8]>,
}

impl Attribute {
    /// Bytes that it takes, about.
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

/// The attributes of a file.
#[derive(Debug, Default)]
pub struct Xattrs {
    /// As they came.
    all: Vec<Attribute>,
}

impl Xattrs {
    fn find(&self, name: &[u8]) -> Option<usize> {
        self.all.iter().position(|one| *one.name == *name)
    }

    /// The value of an attribute.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.find(name).map(|at| &*self.all[at].value)
    }

    /// The value of an attribute, to be changed in its place.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut [u8]> {
        let at = self.find(name)?;
        Some(&mut self.all[at].value)
    }

    /// Bytes that an attribute takes, about.
    pub fn bytes_of(&self, name: &[u8]) -> usize {
        self.find(name).map_or(0, |at| self.all[at].bytes())
    }

    /// Sets one; gives back the one that it replaces, or itself where it is refused.
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

    /// Takes one away.
    pub fn remove(&mut self, name: &[u8]) -> Option<Attribute> {
        let at = self.find(name)?;
        Some(self.all.remove(at))
    }

    /// The names, the youngest first, as Linux has it.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().rev().map(|one| &*one.name)
    }

    /// Returns a copy of all, or `None` if memory is short.
    pub fn copy(&self) -> Option<Self> {
        let mut all = Vec::new();
        all.try_reserve_exact(self.all.len()).ok()?;
        for one in &self.all {
            all.push(one.copy()?);
        }
        Some(Self { all })
    }

    /// Bytes that all take, about.
    pub fn bytes(&self) -> usize {
        self.all.iter().map(Attribute::bytes).sum()
    }
}
