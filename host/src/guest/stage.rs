//! The stages of a guest's life, and how its program ended.

/// The stage of a guest's life, as the guest itself reports it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// No user program has run yet.
    Booting,
    /// The program runs.
    Running,
    /// The program ended with this Linux wait status.
    Exited(WaitStatus),
    /// The kernel panicked.
    Panicked,
}

/// How a program ended, as `wait(2)` encodes it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct WaitStatus(u32);

impl WaitStatus {
    /// Creates the status from the number that a guest sent, in the encoding of `wait(2)`.
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Returns the status as a shell shows it: the exit code, or 128 plus the number of the signal
    /// that ended the program.
    pub(crate) fn code(self) -> u8 {
        let [low, code, ..] = self.0.to_le_bytes();
        match low & 0x7f {
            0 => code,
            signal => 128 + signal,
        }
    }

    /// Returns the number of the signal that ended the program, or `None` if it exited.
    pub(crate) fn signal(self) -> Option<i32> {
        match self.0 & 0x7f {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_status_becomes_a_shell_status() {
        assert_eq!(WaitStatus(0).code(), 0);
        assert_eq!(WaitStatus(3 << 8).code(), 3);
        assert_eq!(WaitStatus(9).code(), 137);
        assert_eq!(WaitStatus(11 | 0x80).code(), 139);
        assert_eq!(WaitStatus(u32::MAX).code(), 255);
    }
}
