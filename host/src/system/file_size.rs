//! The limit for the size of a file (`ulimit -f`).

use signal_hook::consts::SIGXFSZ;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Makes a write beyond the file size limit (`ulimit -f`) fail with `EFBIG`, in this process.
/// Without this call the signal `SIGXFSZ` would end `ebb`, and a guest can cause such a write in a
/// volume. Installs a handler for the signal; an error of that is ignored.
pub(crate) fn heed_file_size_limit() {
    // If the handler cannot be installed, the signal keeps its default action.
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
