//! Statistics of two things that were measured in turn.

/// The median of some figures, and the confidence interval of their population's median.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Middle {
    pub(crate) median: f64,
    /// The lower end of the interval, with a confidence of at least [`CONFIDENCE`].
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The confidence of intervals.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// The conclusion from an interval of ratios.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    More,
    Less,
    Unproven,
}

impl Middle {
    /// Returns the median of `values` and its interval. Returns `None` if there are no values. With
    /// fewer than six values there is no such interval, and its ends are NaN. The interval is from
    /// ranks only and assumes no distribution: the population's median is below the k-th smallest
    /// value only if fewer than k values came out below the median, each with a chance of one half.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let middle = *values.get(count / 2)?;
        let median = if count.is_multiple_of(2) {
            f64::midpoint(values[count / 2 - 1], middle)
        } else {
            middle
        };
        let (low, high) = rank(count).map_or((f64::NAN, f64::NAN), |rank| {
            (values[rank], values[count - 1 - rank])
        });
        Some(Self { median, low, high })
    }

    /// Returns on which side of 1 the interval is.
    pub(crate) fn verdict(self) -> Verdict {
        if self.low > 1.0 {
            Verdict::More
        } else if self.high < 1.0 {
            Verdict::Less
        } else {
            Verdict::Unproven
        }
    }
}

/// Returns the largest rank, from 0, such that the values at this rank from either end enclose the
/// median with the required confidence. Returns `None` if there is none.
fn rank(count: usize) -> Option<usize> {
    let mut chance = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut below = 0.0;
    let mut found = None;
    for rank in 0..count / 2 {
        below += chance;
        if 1.0 - 2.0 * below < CONFIDENCE {
            break;
        }
        found = Some(rank);
        chance *= (count - rank) as f64 / (rank + 1) as f64;
    }
    found
}

/// Returns the ratio of `ours` to `theirs`, pair by pair.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Middle> {
    Middle::of(ours.iter().zip(theirs).map(|(a, b)| a / b).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_sign_test() {
        // From tables of the sign test at 5 %, two-sided.
        for (count, expected) in [
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (12, Some(2)),
            (15, Some(3)),
            (25, Some(7)),
        ] {
            assert_eq!(rank(count), expected, "{count}");
        }
    }

    #[test]
    fn what_is_proven_is_said() {
        let verdict = |values: &[f64]| Middle::of(values.to_vec()).map(Middle::verdict);
        assert_eq!(
            verdict(&[1.1, 1.2, 1.3, 1.1, 1.2, 1.01]),
            Some(Verdict::More)
        );
        assert_eq!(
            verdict(&[0.1, 0.2, 0.3, 0.1, 0.2, 0.9]),
            Some(Verdict::Less)
        );
        assert_eq!(
            verdict(&[1.1, 1.2, 0.9, 1.1, 1.2, 1.1]),
            Some(Verdict::Unproven)
        );
        assert_eq!(
            verdict(&[1.1, 1.2, 1.1]),
            Some(Verdict::Unproven),
            "too few"
        );
        assert_eq!(verdict(&[]), None);
    }
}
