//! `swap-pressure`: allocates memory and frees it, so that others need no swap.
//!
//! This is the case of free page hinting: a guest allocates most of its memory and frees it. If the
//! freed pages reach the host, a second guest or a process there uses them. If they do not, the
//! host swaps. This program is the guest's side only.

use crate::output::Output;
use crate::{Experiment, Failure, args, meminfo, size};
use std::time::Duration;

/// The experiment `swap-pressure`, with its arguments, help text and function: allocates memory and
/// frees it, so that others need no swap.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "swap-pressure",
    usage: "[SIZE [STAY_SECONDS]]",
    summary: "allocate memory, free it, and leave it to others",
    help: "\
SIZE (512M) is allocated in pieces of 1 MiB, filled with data that does not compress, checked and
freed. The program then stays for STAY_SECONDS (60), in which a second guest or a process on the
host can use what was freed.

Prints the phases before, taken, freed and after, and at each of them how much memory and swap the
guest has in all, in use and free.",
    run,
};

const DEFAULT_BYTES: usize = 512 << 20;
const DEFAULT_STAY: Duration = Duration::from_secs(60);
const PIECE_BYTES: usize = 1 << 20;
/// The seed of the data. Each piece has a different sequence.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 2)?;
    let mut words = words.iter();
    let bytes = words.next().map_or(Ok(DEFAULT_BYTES), |w| size::parse(w))?;
    let stay = words
        .next()
        .map_or(Ok(DEFAULT_STAY), |w| args::duration(w))?;
    sizes("before", bytes, out)?;
    let pieces = take(bytes)?;
    sizes("taken", bytes, out)?;
    check(&pieces)?;
    drop(pieces);
    sizes("freed", bytes, out)?;
    std::thread::sleep(stay);
    sizes("after", bytes, out)
}

/// Allocates and fills `bytes` bytes in pieces.
fn take(bytes: usize) -> Result<Vec<Vec<u64>>, Failure> {
    let mut pieces = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let count = left.min(PIECE_BYTES).div_ceil(8);
        let mut piece = Vec::new();
        piece.try_reserve_exact(count).map_err(|_| {
            Failure::Wrong(format!("no memory after {} of {bytes} bytes", bytes - left))
        })?;
        let mut state = state(pieces.len());
        piece.resize_with(count, || next(&mut state));
        pieces.push(piece);
        left -= left.min(PIECE_BYTES);
    }
    Ok(pieces)
}

/// Checks that all pieces have the contents that were written. Fails with `Wrong` otherwise.
fn check(pieces: &[Vec<u64>]) -> Result<(), Failure> {
    for (index, piece) in pieces.iter().enumerate() {
        let mut state = state(index);
        if piece.iter().any(|&word| word != next(&mut state)) {
            return Err(Failure::Wrong(format!(
                "piece {index} lost what was written"
            )));
        }
    }
    Ok(())
}

/// Returns the generator's initial state for piece `index`.
fn state(index: usize) -> u64 {
    SEED.wrapping_mul(2 * index as u64 + 1)
}

/// A step of xorshift64: fast, and a host can neither compress nor merge the result.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Prints a phase with the guest's memory and swap.
fn sizes(name: &str, bytes: usize, out: &mut Output) -> Result<(), Failure> {
    out.phase(name, Some(bytes))?;
    for (what, total, free, metric) in [
        ("memory", "MemTotal", "MemFree", "mem_free_kib"),
        ("swap", "SwapTotal", "SwapFree", "swap_free_kib"),
    ] {
        if let (Some(total), Some(free)) = (meminfo::kib(total), meminfo::kib(free)) {
            let used = total.saturating_sub(free);
            out.say(&format!(
                "  {what:<6} {total:>9} kB, used {used:>9} kB, free {free:>9} kB"
            ))?;
            out.fact(metric, free, name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_differ_and_a_changed_word_is_found() {
        let mut pieces = take(2 * PIECE_BYTES + 8).expect("memory");
        assert_eq!(pieces.len(), 3);
        assert_ne!(pieces[0], pieces[1]);
        check(&pieces).expect("unchanged");
        pieces[1][7] ^= 1;
        let error = check(&pieces).expect_err("changed");
        assert!(error.to_string().contains("piece 1"), "{error}");
    }
}
