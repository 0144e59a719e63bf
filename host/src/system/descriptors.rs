//! How many files this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of files that this process may have open to `wanted`, as far as the host's hard
/// limit goes. Returns the number that may be open now, which is larger if it was before.
pub(crate) fn allow_open_files(wanted: u64) -> u64 {
    let limits = getrlimit(Resource::Nofile);
    // No limit is written as none.
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
