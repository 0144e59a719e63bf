//! How many times better one figure is than another.

use super::schema::Better;

/// How many times better `ebb` is than `linux`; above 1 where Ebb is ahead.
///
/// `None` where a figure is not positive, since "times" means nothing there.
pub(crate) fn ratio(better: Better, ebb: f64, linux: f64) -> Option<f64> {
    if !(ebb > 0.0 && linux > 0.0 && ebb.is_finite() && linux.is_finite()) {
        return None;
    }
    Some(match better {
        Better::Higher => ebb / linux,
        Better::Lower => linux / ebb,
    })
}
