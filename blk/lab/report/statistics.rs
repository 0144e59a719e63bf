//! Statistics of figures, and tests whether two sets differ.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence from which a difference counts as proven.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// A summary of at least one figure. All figures are finite.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) median: f64,
    pub(crate) mean: f64,
    /// The standard deviation of the sample (divided by `count - 1`); 0 for a single figure.
    pub(crate) deviation: f64,
}

impl Summary {
    /// Returns the summary of `figures`. Returns `None` if there are none, or one is not finite.
    pub(crate) fn of(figures: &[f64]) -> Option<Self> {
        if figures.is_empty() || figures.iter().any(|figure| !figure.is_finite()) {
            return None;
        }
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let (low, high) = (sorted[(count - 1) / 2], sorted[count / 2]);
        let mean = sorted.iter().sum::<f64>() / number(count);
        let squares: f64 = sorted.iter().map(|figure| (figure - mean).powi(2)).sum();
        let variance = if count > 1 {
            squares / number(count - 1)
        } else {
            0.0
        };
        Some(Self {
            count,
            min: sorted[0],
            max: sorted[count - 1],
            median: f64::midpoint(low, high),
            mean,
            deviation: variance.sqrt(),
        })
    }

    fn error_squared(&self) -> f64 {
        self.deviation.powi(2) / number(self.count)
    }
}

/// The difference of two sets of figures by Welch's t-test, two-sided.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum Difference {
    /// One of the sets has fewer than two figures.
    Unknown,
    /// The difference is not proven.
    NotProven {
        /// Maximum difference of the means, at [`CONFIDENCE`].
        within: f64,
    },
    /// The difference is proven.
    Proven {
        /// The difference of the means.
        by: f64,
        /// Half the width of its interval, at [`CONFIDENCE`].
        within: f64,
    },
}

impl Difference {
    /// Compares `figures` with `reference`.
    pub(crate) fn between(figures: &Summary, reference: &Summary) -> Self {
        if figures.count < 2 || reference.count < 2 {
            return Self::Unknown;
        }
        let by = figures.mean - reference.mean;
        let (one, other) = (figures.error_squared(), reference.error_squared());
        let error = (one + other).sqrt();
        let within = if error > 0.0 {
            // Welch and Satterthwaite's degrees of freedom.
            let freedom = (one + other).powi(2)
                / (one.powi(2) / number(figures.count - 1)
                    + other.powi(2) / number(reference.count - 1));
            match StudentsT::new(0.0, 1.0, freedom) {
                Ok(t) => t.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * error,
                Err(_) => return Self::Unknown,
            }
        } else {
            0.0
        };
        if by.abs() > within {
            Self::Proven { by, within }
        } else {
            Self::NotProven {
                within: by.abs() + within,
            }
        }
    }
}

fn number(count: usize) -> f64 {
    // The number of rounds is far below what f64 represents exactly.
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(figures: &[f64]) -> Summary {
        Summary::of(figures).expect("finite figures")
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-6
    }

    #[test]
    fn the_seeds_own_figures() {
        // Its five fast and slow runs are not published singly; these figures have the same
        // summaries.
        let slow = summary(&[38.7, 38.7, 38.7, 38.7, 45.8]);
        assert!(
            near(slow.mean, 40.12) && near(slow.deviation, 3.175_216_5),
            "{slow:?}"
        );
        assert!(near(slow.median, 38.7) && near(slow.min, 38.7) && near(slow.max, 45.8));
    }

    #[test]
    fn an_even_number_has_its_median_between() {
        assert!(near(summary(&[4.0, 1.0, 3.0, 2.0]).median, 2.5));
        assert!(near(summary(&[7.0]).deviation, 0.0));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    /// Welch's test of the data set `sleep` in R's documentation of `t.test`: t = -1.8608, df =
    /// 17.776, the interval of the difference is -3.3654832 to 0.2054832.
    #[test]
    fn welch_as_r_has_it() {
        let one = summary(&[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
        let other = summary(&[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
        match Difference::between(&one, &other) {
            Difference::NotProven { within } => assert!(near(within, 3.365_483_2), "{within}"),
            wrong => panic!("{wrong:?}"),
        }
    }

    #[test]
    fn what_is_far_apart_is_proven() {
        let one = summary(&[10.0, 10.1, 9.9]);
        let other = summary(&[11.0, 11.1, 10.9]);
        match Difference::between(&one, &other) {
            Difference::Proven { by, within } => {
                assert!(
                    near(by, -1.0) && within > 0.0 && within < 1.0,
                    "{by} {within}"
                );
            }
            wrong => panic!("{wrong:?}"),
        }
    }

    #[test]
    fn without_deviation_any_difference_is_one() {
        let one = summary(&[2.0, 2.0]);
        assert_eq!(
            Difference::between(&one, &one),
            Difference::NotProven { within: 0.0 }
        );
        let other = summary(&[3.0, 3.0]);
        assert!(matches!(
            Difference::between(&one, &other),
            Difference::Proven { .. }
        ));
        assert_eq!(
            Difference::between(&summary(&[1.0]), &other),
            Difference::Unknown
        );
    }
}
