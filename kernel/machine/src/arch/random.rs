//! Random bytes: ChaCha20, keyed from the CPU's generator and the time-stamp counter.
//!
//! After each request the key is replaced by output that is not given out, so that earlier bytes
//! cannot be computed from a later state.

use super::spin::SpinLock;
use core::arch::x86_64::{__cpuid, _rdtsc};

/// Words of the ChaCha20 state.
const WORDS: usize = 16;
/// Bytes of one block.
const BLOCK: usize = WORDS * 4;
const KEY_WORDS: usize = 8;
/// The most attempts with `rdrand` before the counter alone must do.
const TRIES: usize = 16;
/// The number of blocks between two reseedings from the hardware.
const RESEED_AFTER: u64 = 1 << 14;

struct Generator {
    key: [u32; KEY_WORDS],
    blocks: u64,
    seeded: bool,
}

static GENERATOR: SpinLock<Generator> = SpinLock::new(Generator {
    key: [0; KEY_WORDS],
    blocks: 0,
    seeded: false,
});

fn quarter(state: &mut [u32; WORDS], a: usize, b: usize, c: usize, d: usize) {
    state[a] = state[a].wrapping_add(state[b]);
    state[d] = (state[d] ^ state[a]).rotate_left(16);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_left(12);
    state[a] = state[a].wrapping_add(state[b]);
    state[d] = (state[d] ^ state[a]).rotate_left(8);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_left(7);
}

/// One block of the ChaCha20 key stream (RFC 8439, with a 64-bit counter and nonce 0).
fn chacha20(key: &[u32; KEY_WORDS], counter: u64) -> [u32; WORDS] {
    let mut initial = [0_u32; WORDS];
    initial[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    initial[4..12].copy_from_slice(key);
    let counter = counter.to_le_bytes();
    initial[12] = u32::from_le_bytes([counter[0], counter[1], counter[2], counter[3]]);
    initial[13] = u32::from_le_bytes([counter[4], counter[5], counter[6], counter[7]]);
    let mut state = initial;
    for _ in 0..10 {
        quarter(&mut state, 0, 4, 8, 12);
        quarter(&mut state, 1, 5, 9, 13);
        quarter(&mut state, 2, 6, 10, 14);
        quarter(&mut state, 3, 7, 11, 15);
        quarter(&mut state, 0, 5, 10, 15);
        quarter(&mut state, 1, 6, 11, 12);
        quarter(&mut state, 2, 7, 8, 13);
        quarter(&mut state, 3, 4, 9, 14);
    }
    for (word, initial) in state.iter_mut().zip(initial) {
        *word = word.wrapping_add(initial);
    }
    state
}

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
        for pair in self.key.chunks_exact_mut(2) {
            // SAFETY: every x86-64 CPU has a time-stamp counter.
            let time = unsafe { _rdtsc() };
            let mixed = hardware().unwrap_or(0) ^ time.rotate_left(32);
            let bytes = mixed.to_le_bytes();
            pair[0] ^= u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            pair[1] ^= u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        }
        self.seeded = true;
        self.rekey();
    }

    fn rekey(&mut self) {
        let block = chacha20(&self.key, u64::MAX);
        self.key.copy_from_slice(&block[..KEY_WORDS]);
    }

    fn fill(&mut self, buffer: &mut [u8]) {
        if !self.seeded || self.blocks >= RESEED_AFTER {
            self.reseed();
            self.blocks = 0;
        }
        for (counter, chunk) in (0_u64..).zip(buffer.chunks_mut(BLOCK)) {
            let block = chacha20(&self.key, counter);
            for (piece, word) in chunk.chunks_mut(4).zip(block) {
                piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
            }
            self.blocks += 1;
        }
        self.rekey();
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
    for (at, &byte) in bytes.iter().enumerate() {
        let word = &mut generator.key[at / 4 % KEY_WORDS];
        *word ^= u32::from(byte) << (at % 4 * 8);
        if at % (KEY_WORDS * 4) == KEY_WORDS * 4 - 1 {
            generator.rekey();
        }
    }
    generator.rekey();
}
