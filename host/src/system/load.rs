//! The load of the host's CPUs.

use std::fs;
use std::thread;

/// Returns the number of threads that run or wait for a CPU, divided by the number of CPUs, as the
/// mean of the last minute in `/proc/loadavg`. `others` is the number of further threads that the
/// caller expects to run.
///
/// The result is at least 1, so it is how many times longer the work of one thread takes. Returns
/// 1 if the host's load is not known.
pub(crate) fn slowdown(others: u32) -> f64 {
    let load = fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok());
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get());
    load.map_or(1.0, |load| of_load(load, others, cpus))
}

fn of_load(load: f64, others: u32, cpus: usize) -> f64 {
    let cpus = f64::from(u32::try_from(cpus).unwrap_or(u32::MAX));
    ((load + f64::from(others)) / cpus).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::of_load;

    #[test]
    fn threads_share_the_cpus() {
        assert_eq!(of_load(0.0, 0, 2), 1.0);
        assert_eq!(of_load(1.5, 0, 2), 1.0);
        assert_eq!(of_load(5.0, 1, 2), 3.0);
    }
}
