//! Restartable sequences: checks whether a thread was interrupted in one. Pure logic.

/// A critical section as a program describes it (`struct rseq_cs`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Must be 0.
    pub version: u32,
    /// Must be 0: no flags are supported any more.
    pub flags: u32,
    /// Address of the first instruction.
    pub start: u64,
    /// Number of bytes up to the end of the instruction that commits.
    pub length: u64,
    /// Address where a thread continues after an interruption in the section.
    pub abort: u64,
}

/// The error if the description of a critical section is invalid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Senseless;

impl Section {
    /// Returns whether `address` is in the section.
    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.length
    }

    /// Returns whether a thread that would continue at the address `next` must continue at
    /// [`Self::abort`] instead, because `next` is in the section. `end` is the first address that
    /// programs cannot use.
    ///
    /// # Errors
    /// [`Senseless`] if the description is invalid. The flags are only checked if `next` is in the
    /// section.
    pub fn interrupts(&self, next: u64, end: u64) -> Result<bool, Senseless> {
        let last = self.start.checked_add(self.length).ok_or(Senseless)?;
        let outside = self.start >= end || last >= end || self.abort >= end;
        if outside || self.version != 0 || self.contains(self.abort) {
            return Err(Senseless);
        }
        if !self.contains(next) {
            return Ok(false);
        }
        if self.flags != 0 {
            return Err(Senseless);
        }
        Ok(true)
    }
}
