//! Structures of the ABI as bytes: every byte written, padding zero.

use crate::vm::uaccess;
use logic::errno::Errno;

/// A structure of `N` bytes that is being put together.
#[derive(Debug)]
pub(super) struct Record<const N: usize>([u8; N]);

impl<const N: usize> Record<N> {
    /// All zero.
    pub(super) const fn new() -> Self {
        Self([0; N])
    }

    /// Reads one from the program's memory.
    pub(super) fn read(address: u64) -> Result<Self, Errno> {
        let mut record = Self::new();
        uaccess::copy_in(&mut record.0, address)?;
        Ok(record)
    }

    /// Writes it to the program's memory.
    pub(super) fn write(&self, address: u64) -> Result<(), Errno> {
        uaccess::copy_out(address, &self.0)
    }

    pub(super) fn set_u16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    pub(super) fn set_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub(super) fn set_u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn bytes<const M: usize>(&self, at: usize) -> [u8; M] {
        let mut bytes = [0; M];
        bytes.copy_from_slice(&self.0[at..at + M]);
        bytes
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }
}
