//! Restartable sequences: whether a thread was interrupted in one. Pure logic.

/// `struct rseq_cs`: a critical section, as a program describes it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// 0.
    pub version: u32,
    /// 0: no others are left.
    pub flags: u32,
    /// Its first instruction.
    pub start: u64,
    /// Bytes up to the end of the instruction that commits.
    pub length: u64,
    /// Where a thread goes on that was interrupted in it.
    pub abort: u64,
}

/// The description makes no sense.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Senseless;

impl Section {
    /// Whether `address` is an instruction of it.
    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.length
    }

    /// Whether a thread that goes on at `next` is to go on at [`Self::abort`] instead; programs' addresses
    /// are below `end`.
    ///
    /// # Errors
    /// The description makes no sense; that of flags is looked at only inside of the section.
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
