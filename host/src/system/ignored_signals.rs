//! Signals that this process was started to ignore.

use signal_hook::consts::{SIGCHLD, SIGHUP};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns `signals`, for which handlers are to be installed, without SIGHUP if this process
/// ignores it. A handler would undo what nohup(1) has set up.
pub(crate) fn without_ignored_hangup<const N: usize>(
    signals: [i32; N],
) -> impl Iterator<Item = i32> {
    let ignored = ignores(SIGHUP);
    let signals = signals.into_iter();
    signals.filter(move |signal| !ignored || *signal != SIGHUP)
}

/// Makes the kernel keep the statuses of ended child processes until they are waited for, also if
/// this process was started to ignore SIGCHLD. Installs a handler for the signal then; an error of
/// that is ignored.
pub(crate) fn heed_children() {
    if ignores(SIGCHLD) {
        let _ = signal_hook::flag::register(SIGCHLD, Arc::new(AtomicBool::new(false)));
    }
}

/// Returns whether this process ignores `signal`. Returns `false` if `/proc` does not tell.
fn ignores(signal: i32) -> bool {
    let status = fs::read("/proc/self/status").unwrap_or_default();
    is_ignored(signal, &String::from_utf8_lossy(&status))
}

/// Returns whether the process whose `/proc/PID/status` is `status` ignores `signal`. Returns
/// `false` if it does not tell.
fn is_ignored(signal: i32, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::{SIGINT, SIGPIPE};

    #[test]
    fn what_is_ignored_is_in_a_mask() {
        let status = "Name:\tebb\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(SIGHUP, status) && is_ignored(SIGPIPE, status));
        assert!(!is_ignored(SIGINT, status));
        for nothing in ["", "SigIgn:\t\n", "SigIgn:\tx\n"] {
            assert!(!is_ignored(SIGHUP, nothing), "{nothing}");
        }
    }

    #[test]
    fn other_signals_stay() {
        let all: Vec<_> = without_ignored_hangup([SIGINT, SIGHUP, SIGPIPE]).collect();
        assert!(all == [SIGINT, SIGHUP, SIGPIPE] || all == [SIGINT, SIGPIPE]);
    }
}
