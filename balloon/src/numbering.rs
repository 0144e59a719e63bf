//! Finds the index of the reporting queue.
//!
//! The standard gives the queues fixed numbers: inflateq 0, deflateq 1, statsq 2, free_page_vq 3,
//! reporting_vq 4. Queues of absent features are left out. Device models (QEMU up to now, others
//! after it) instead number the queues that they have without gaps, in the same order, as Linux
//! drivers did for many years. QEMU always has a statsq, so with `free-page-reporting=on` alone its
//! reporting queue is number 3, not 4. Both ways agree up to the statsq.
//!
//! So the driver tests which queues exist and takes the numbering that fits:
//!
//! | offered                   | standard | without gaps |
//! |---------------------------|----------|--------------|
//! | STATS, HINT and REPORTING | 4        | 4            |
//! | STATS and REPORTING       | 4        | 3            |
//! | HINT and REPORTING        | 4        | 3            |
//! | REPORTING                 | 4        | 2            |

use crate::features::Features;

/// Index of the inflate queue. It is the same in the standard's numbering and in the numbering
/// without gaps.
pub(crate) const INFLATE: u16 = 0;
/// Index of the deflate queue. It is the same in the standard's numbering and in the numbering
/// without gaps.
pub(crate) const DEFLATE: u16 = 1;
/// Index of the statistics queue if the device offers statistics. It is the same in the standard's
/// numbering and in the numbering without gaps.
pub(crate) const STATS: u16 = 2;

/// Index of the queue for free page hinting in the standard's numbering.
const HINT_STANDARD: u16 = 3;
/// Index of the reporting queue in the standard's numbering.
const REPORTING_STANDARD: u16 = 4;

/// Returns the index of the reporting queue of a device that offers reporting. `offered` and
/// `accepted` are the negotiated features. `exists` must return whether the device has a queue with
/// the given index. Returns `None` if neither the standard's numbering nor the one without gaps
/// leads to a queue that exists.
pub(crate) fn reporting_queue(
    offered: Features,
    accepted: Features,
    mut exists: impl FnMut(u16) -> bool,
) -> Option<u16> {
    // By the standard, queue 3 exists only if hinting is offered. If it exists without that, the
    // device numbers without gaps, and a queue 4 would belong to another feature.
    let hint_offered = offered.contains(Features::FREE_PAGE_HINT);
    if (hint_offered || !exists(HINT_STANDARD)) && exists(REPORTING_STANDARD) {
        return Some(REPORTING_STANDARD);
    }
    // Without gaps: most devices count the features that they offer, some those that were accepted.
    let of_offered = without_gaps(offered);
    if exists(of_offered) {
        return Some(of_offered);
    }
    let of_accepted = without_gaps(accepted);
    exists(of_accepted).then_some(of_accepted)
}

/// Returns the index of the reporting queue if the queues of `features` are numbered without gaps.
fn without_gaps(features: Features) -> u16 {
    let before = [Features::STATS_VQ, Features::FREE_PAGE_HINT];
    let optional = before.iter().filter(|&&bit| features.contains(bit)).count();
    // `optional` is at most 2, so the conversion cannot fail.
    DEFLATE + 1 + u16::try_from(optional).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::reporting_queue;
    use crate::features::Features;

    const STATS: Features = Features::STATS_VQ;
    const HINT: Features = Features::FREE_PAGE_HINT;
    const REPORTING: Features = Features::REPORTING;

    fn find(offered: Features, accepted: Features, queues: &[u16]) -> Option<u16> {
        reporting_queue(offered, accepted, |index| queues.contains(&index))
    }

    #[test]
    fn by_the_standard() {
        for (offered, queues) in [
            (STATS | HINT | REPORTING, &[0, 1, 2, 3, 4][..]),
            (STATS | REPORTING, &[0, 1, 2, 4]),
            (HINT | REPORTING, &[0, 1, 3, 4]),
            (REPORTING, &[0, 1, 4]),
        ] {
            for accepted in [offered - HINT, offered - HINT - STATS] {
                assert_eq!(find(offered, accepted, queues), Some(4), "{offered:?}");
            }
        }
    }

    #[test]
    fn without_gaps_over_the_offer() {
        for (offered, queues, index) in [
            (STATS | HINT | REPORTING, &[0, 1, 2, 3, 4][..], 4),
            (STATS | REPORTING, &[0, 1, 2, 3], 3),
            (HINT | REPORTING, &[0, 1, 2, 3], 3),
            (REPORTING, &[0, 1, 2], 2),
        ] {
            for accepted in [offered - HINT, offered - HINT - STATS] {
                assert_eq!(find(offered, accepted, queues), Some(index), "{offered:?}");
            }
        }
    }

    #[test]
    fn without_gaps_over_what_was_accepted() {
        for (accepted, queues, index) in [
            (STATS | REPORTING, &[0, 1, 2, 3][..], 3),
            (REPORTING, &[0, 1, 2], 2),
        ] {
            assert_eq!(
                find(STATS | HINT | REPORTING, accepted, queues),
                Some(index)
            );
        }
    }

    #[test]
    fn queues_of_unknown_features_follow() {
        assert_eq!(
            find(STATS | REPORTING, STATS | REPORTING, &[0, 1, 2, 3, 4, 5]),
            Some(3)
        );
        assert_eq!(find(REPORTING, REPORTING, &[0, 1, 2, 3, 4]), Some(2));
    }

    #[test]
    fn absent() {
        assert_eq!(find(STATS | REPORTING, STATS | REPORTING, &[0, 1, 2]), None);
        assert_eq!(find(REPORTING, REPORTING, &[]), None);
    }
}
