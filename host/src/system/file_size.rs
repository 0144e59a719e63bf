//! The limit of a file's size (`ulimit -f`).

use signal_hook::consts::SIGXFSZ;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Has a write beyond the limit fail with `EFBIG`. Left alone the kernel would end `ebb`, and a guest can ask for
/// such a write in a volume.
pub(crate) fn heed_file_size_limit() {
    // Without the handler it is as it was.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_ends_nothing() {
        heed_file_size_limit();
        signal_hook::low_level::raise(SIGXFSZ).unwrap();
    }
}
