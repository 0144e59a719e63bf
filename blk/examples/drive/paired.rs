//! What two things measured in turn say about each other.

/// The middle of some figures and the interval in which their population's middle lies.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Middle {
    pub(crate) median: f64,
    /// With a confidence of at least [`CONFIDENCE`].
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Of intervals.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// What an interval of ratios says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    More,
    Less,
    Unproven,
}

impl Middle {
    /// Of `values`. The interval goes by ranks alone: that the middle lies below the k-th smallest
    /// value takes that fewer than k of them came out below it, each with a chance of one half.
    /// Nothing is assumed about how the values are distributed. With fewer than six there is no
    /// such interval.
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

/// The largest rank, from 0, whose value and its opposite enclose the middle often enough.
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

/// `ours` by `theirs`, pair by pair.
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
