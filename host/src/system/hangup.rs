//! Hang-ups (SIGHUP) that this process was started to ignore, as nohup(1) starts a command.

use signal_hook::consts::SIGHUP;
use std::fs;

/// Returns `signals`, for which handlers are to be installed, without SIGHUP if this process
/// ignores it. A handler would undo what nohup(1) has set up. If `/proc` does not tell, SIGHUP
/// counts as not ignored.
pub(crate) fn without_ignored_hangup<const N: usize>(
    signals: [i32; N],
) -> impl Iterator<Item = i32> {
    let status = fs::read("/proc/self/status").unwrap_or_default();
    let ignored = is_ignored(SIGHUP, &String::from_utf8_lossy(&status));
    let signals = signals.into_iter();
    signals.filter(move |signal| !ignored || *signal != SIGHUP)
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
