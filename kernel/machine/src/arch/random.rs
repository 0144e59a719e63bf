//! Random bytes: ChaCha20, keyed from the CPU's generator and the time-stamp counter.
//!
//! After each request the key is replaced by output that is not given out, so that earlier bytes
//! cannot be computed from a later state.

use super::spin::SpinLock;
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use core::arch::x86_64::{__cpuid, _rdtsc};

// The other code of this crate is chosen by the CPU at run time, and the kernel does not preserve
// the registers that it uses.
#[cfg(all(feature = "runtime", not(chacha20_backend = "sse2")))]
compile_error!("the kernel needs `--cfg chacha20_backend=\"sse2\"`");

/// Bytes of a key.
const KEY: usize = 32;
/// The most attempts with `rdrand` before the counter alone must do.
const TRIES: usize = 16;
/// The number of requests between two reseedings from the hardware.
const RESEED_AFTER: u64 = 1 << 12;

struct Generator {
    key: [u8; KEY],
    requests: u64,
    seeded: bool,
}

static GENERATOR: SpinLock<Generator> = SpinLock::new(Generator {
    key: [0; KEY],
    requests: 0,
    seeded: false,
});

/// Returns 64 random bits of the CPU, or `None` if it has no `rdrand` or that keeps failing.
fn hardware() -> Option<u64> {
    const RDRAND: u32 = 1 << 30;
    if __cpuid(1).ecx & RDRAND == 0 {
        return None;
    }
    for _ in 0..TRIES {
        let value: u64;
        let good: u8;
        // SAFETY: the CPU has the instruction; it changes the two outputs and the flags alone.
        unsafe {
            core::arch::asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) good,
                options(nomem, nostack));
        }
        if good != 0 {
            return Some(value);
        }
    }
    None
}

impl Generator {
    /// Mixes fresh entropy into the key.
    fn reseed(&mut self) {
        for piece in self.key.chunks_exact_mut(size_of::<u64>()) {
            // SAFETY: every x86-64 CPU has a time-stamp counter.
            let time = unsafe { _rdtsc() };
            let mixed = hardware().unwrap_or(0) ^ time.rotate_left(32);
            for (byte, mixed) in piece.iter_mut().zip(mixed.to_ne_bytes()) {
                *byte ^= mixed;
            }
        }
        self.seeded = true;
        self.requests = 0;
        self.rekey();
    }

    /// Replaces the key by output of the generator, and returns the generator, which has more.
    fn rekey(&mut self) -> ChaCha20Rng {
        let mut output = ChaCha20Rng::from_seed(self.key);
        output.fill_bytes(&mut self.key);
        output
    }

    fn fill(&mut self, buffer: &mut [u8]) {
        if !self.seeded || self.requests >= RESEED_AFTER {
            self.reseed();
        }
        self.requests += 1;
        self.rekey().fill_bytes(buffer);
    }
}

/// Fills `buffer` with random bytes. Never fails, and never waits for entropy: the first call seeds
/// the generator, from the time-stamp counter alone if the CPU has no `rdrand`. Holds a spin lock
/// during the call, so a caller fills a long buffer in pieces of a page.
pub fn fill(buffer: &mut [u8]) {
    GENERATOR.lock().fill(buffer);
}

/// Mixes `bytes`, which a program wrote to `/dev/random`, into the generator's key.
pub fn mix(bytes: &[u8]) {
    let mut generator = GENERATOR.lock();
    for piece in bytes.chunks(KEY) {
        for (byte, mixed) in generator.key.iter_mut().zip(piece) {
            *byte ^= mixed;
        }
        generator.rekey();
    }
}
