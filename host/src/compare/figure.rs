//! One figure of a run.

use super::schema::Better;
use std::collections::BTreeMap;

/// One figure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Figure {
    pub(crate) metric: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) value: f64,
    pub(crate) labels: BTreeMap<String, String>,
    /// A figure that is not greater says no more than zero does.
    pub(crate) noise: f64,
    /// Whether one guest's figure may be held against another's.
    pub(crate) comparable: bool,
}

/// One of which less is better.
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
