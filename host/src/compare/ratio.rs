//! The ratio of two figures.

use super::schema::Better;

/// Returns how many times better the figure `ebb` is than `linux`, above 1 if Ebb is better.
/// `better` says whether higher or lower values are better. Returns `None` if a figure is not
/// positive and finite, since a ratio has no meaning then.
pub(crate) fn ratio(better: Better, ebb: f64, linux: f64) -> Option<f64> {
    if !(ebb > 0.0 && linux > 0.0 && ebb.is_finite() && linux.is_finite()) {
        return None;
    }
    Some(match better {
        Better::Higher => ebb / linux,
        Better::Lower => linux / ebb,
    })
}
