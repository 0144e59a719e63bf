//! Scales of plots, and their ticks.

/// A linear map from values to coordinates of a plot.
#[derive(Copy, Clone, Debug)]
pub(super) struct Linear {
    /// The first and the last value.
    pub(super) from: (f64, f64),
    /// The coordinates of these values.
    pub(super) to: (f64, f64),
}

impl Linear {
    /// Returns the coordinate of `value`. Values outside of the range are mapped beyond the
    /// coordinates. Returns the first coordinate if the range is empty.
    pub(super) fn at(self, value: f64) -> f64 {
        let span = self.from.1 - self.from.0;
        let share = if span == 0.0 {
            0.0
        } else {
            (value - self.from.0) / span
        };
        self.to.0 + share * (self.to.1 - self.to.0)
    }
}

/// A logarithmic map from positive values to coordinates of a plot.
#[derive(Copy, Clone, Debug)]
pub(super) struct Logarithmic {
    /// The first and the last value.
    pub(super) from: (f64, f64),
    /// The coordinates of these values.
    pub(super) to: (f64, f64),
}

impl Logarithmic {
    /// Returns the coordinate of `value`. A value that is not positive counts as the smallest
    /// positive one.
    pub(super) fn at(self, value: f64) -> f64 {
        let linear = Linear {
            from: (self.from.0.ln(), self.from.1.ln()),
            to: self.to,
        };
        linear.at(value.max(f64::MIN_POSITIVE).ln())
    }
}

/// The maximum number of ticks of a scale.
const TICKS_MAX: usize = 64;

/// Returns about `count` round values from `low` to `high` in ascending order, at most 64. Returns
/// only `low` if the range is empty or infinite.
pub(super) fn ticks(low: f64, high: f64, count: u32) -> Vec<f64> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) {
        return vec![low];
    }
    let rough = span / f64::from(count.max(1));
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let mut all = Vec::new();
    let mut value = (low / step).ceil() * step;
    while value <= high + step * 1e-9 && all.len() < TICKS_MAX {
        // Rounding removes the error of the division, and adding 0 turns −0 into 0.
        all.push((value / step).round() * step + 0.0);
        value += step;
    }
    all
}

/// Returns at most `count` round values from `low` to `high` for a logarithmic scale: 1, 2 and 5
/// times powers of ten, or fewer. Returns an empty list if `low` is not positive or the range is
/// empty or infinite.
pub(super) fn log_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    if !(low > 0.0 && high >= low && high.is_finite()) {
        return Vec::new();
    }
    let with = |steps: &[f64]| {
        let mut all = Vec::new();
        let mut power = 10f64.powf(low.log10().floor());
        while power <= high && all.len() < TICKS_MAX {
            all.extend(
                steps
                    .iter()
                    .map(|step| step * power)
                    .filter(|value| (low * 0.999..=high * 1.001).contains(value)),
            );
            power *= 10.0;
        }
        all
    };
    [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]]
        .into_iter()
        .map(with)
        .find(|ticks| ticks.len() <= count)
        .unwrap_or_else(|| {
            let tens = with(&[1.0]);
            let every = tens.len().div_ceil(count.max(1));
            tens.into_iter().step_by(every).collect()
        })
}

/// Returns positions for labels, one for each of `wanted` and in its order: near the wanted ones,
/// between `low` and `high`, and at least `gap` apart. If they do not fit, the lowest are below
/// `low`.
pub(super) fn spread_out(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut places = vec![0.0; wanted.len()];
    let mut least = low;
    for &index in &order {
        places[index] = wanted[index].max(least);
        least = places[index] + gap;
    }
    let mut most = high;
    for &index in order.iter().rev() {
        places[index] = f64::min(places[index], most);
        most = places[index] - gap;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.0, 1600.0, 4), [0.0, 500.0, 1000.0, 1500.0]);
        assert_eq!(ticks(-3.0, 21.0, 6), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(ticks(0.0, 0.7, 4), [0.0, 0.2, 0.4, 0.6000000000000001]);
        assert_eq!(ticks(5.0, 5.0, 4), [5.0]);
        assert_eq!(ticks(0.0, f64::NAN, 4), [0.0]);
        assert_eq!(log_ticks(0.5, 20.0, 8), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(log_ticks(1.0, 1e6, 7).len(), 7);
        assert!(log_ticks(1.0, 1e18, 7).len() <= 7);
        assert!(log_ticks(0.0, 1.0, 7).is_empty());
    }

    #[test]
    fn scales_reach_both_ends() {
        let linear = Linear {
            from: (0.0, 10.0),
            to: (100.0, 0.0),
        };
        assert_eq!(
            (linear.at(0.0), linear.at(5.0), linear.at(10.0)),
            (100.0, 50.0, 0.0)
        );
        let log = Logarithmic {
            from: (1.0, 100.0),
            to: (0.0, 10.0),
        };
        assert_eq!((log.at(1.0), log.at(100.0)), (0.0, 10.0));
        assert!((log.at(10.0) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn labels_keep_apart_and_inside() {
        let places = spread_out(&[50.0, 52.0, 0.0, 99.0], 15.0, 0.0, 100.0);
        let mut sorted = places.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(
            sorted.windows(2).all(|pair| pair[1] - pair[0] >= 14.999),
            "{places:?}"
        );
        assert!(
            places.iter().all(|place| (0.0..=100.0).contains(place)),
            "{places:?}"
        );
    }
}
