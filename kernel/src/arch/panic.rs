//! A kernel bug: say what is known, end the VM.

use core::panic::PanicInfo;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    crate::console!("{info}");
    super::cpu::halt_forever()
}
