//! Starting the other CPUs.

/// First Rust code of another CPU.
pub(super) extern "C" fn ap_start(ticket: u64) -> ! {
    let _ = ticket;
    super::cpu::halt_forever()
}
