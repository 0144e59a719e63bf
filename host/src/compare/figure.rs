//! A figure of a run.

use super::schema::Better;
use std::collections::BTreeMap;

/// The value of one metric that was measured in one run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Figure {
    /// The name of the metric, such as `qemu_cpu`.
    pub(crate) metric: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) value: f64,
    /// Labels, which distinguish figures of one metric.
    pub(crate) labels: BTreeMap<String, String>,
    /// The absolute value up to which the figure is not different from zero.
    pub(crate) noise: f64,
    /// Whether one guest's figure may be compared with another's.
    pub(crate) comparable: bool,
}

/// Returns a figure without labels and noise, whose lower values are better. `unit` is the unit of
/// `value`. It may be compared between guests.
pub(super) fn lower(metric: &str, unit: &str, value: f64) -> Figure {
    Figure {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        better: Better::Lower,
        value,
        labels: BTreeMap::new(),
        noise: 0.0,
        comparable: true,
    }
}
