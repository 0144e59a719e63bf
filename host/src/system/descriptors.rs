//! The limit for the number of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit for open files of this process to `wanted`, or to the hard limit if that is
/// lower. Never lowers it. Returns the limit that now holds, the old one if it could not be raised.
/// Returns `u64::MAX` if there is no limit.
pub(crate) fn allow_open_files(wanted: u64) -> u64 {
    let limits = getrlimit(Resource::Nofile);
    // `None` means that there is no limit.
    let Some(current) = limits.current else {
        return u64::MAX;
    };
    let target = limits.maximum.map_or(wanted, |most| most.min(wanted));
    if target <= current {
        return current;
    }
    let raised = Rlimit {
        current: Some(target),
        maximum: limits.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => target,
        Err(_) => current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_never_sinks() {
        let before = allow_open_files(0);
        assert_eq!(allow_open_files(1), before);
        let after = allow_open_files(before.saturating_add(1));
        assert!(after >= before, "{after} after {before}");
    }
}
