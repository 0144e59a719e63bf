use crate::nests::{MAX_LEVELS, MAX_STEPS, Nests, TooDeep};
use alloc::vec::Vec;

#[test]
fn five_levels_fit_and_no_circle_does() {
    let mut nests = Nests::new();
    for outer in 2..=5 {
        assert_eq!(nests.enter(outer, outer - 1), Ok(()));
    }
    assert_eq!(nests.enter(6, 5), Err(TooDeep));
    assert_eq!(
        nests.enter(1, 7),
        Err(TooDeep),
        "a sixth level at the bottom"
    );
    assert_eq!(nests.enter(1, 3), Err(TooDeep));
    assert_eq!(nests.enter(3, 3), Err(TooDeep));
    nests.leave(3, 2);
    assert_eq!(nests.enter(6, 5), Ok(()));
    assert_eq!(nests.enter(2, 9), Ok(()));
}

#[test]
fn what_is_closed_is_forgotten() {
    let mut nests = Nests::new();
    assert_eq!(nests.enter(1, 2), Ok(()));
    assert_eq!(nests.enter(2, 3), Ok(()));
    nests.forget(2);
    assert!(nests.is_empty());
    assert_eq!(nests.enter(3, 1), Ok(()));
}

#[test]
fn ways_that_multiply_are_refused() {
    // Each set of a level is put into each set of the next level. That is refused before there are
    // too many paths.
    let mut nests = Nests::new();
    let mut refused = 0;
    for level in 0..4 {
        for inner in 0..50 {
            for outer in 0..50 {
                let result = nests.enter((level + 1) * 100 + outer, level * 100 + inner);
                refused += usize::from(result.is_err());
            }
        }
    }
    assert!(refused > 0);
    // All existing paths can be walked.
    let mut steps = MAX_STEPS;
    for inner in 0..50 {
        steps = steps.max(MAX_STEPS);
        assert_eq!(nests.climb(inner, 1, &mut steps), Ok(()));
    }
}

/// Compares random changes with a model that walks all paths.
#[test]
fn it_agrees_with_all_ways_looked_at() {
    let mut seed = 0x9e37_79b9_u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut nests = Nests::new();
    let mut edges: Vec<(u64, u64)> = Vec::new();
    fn longest(edges: &[(u64, u64)], from: u64, depth: usize) -> usize {
        if depth > 20 {
            return depth;
        }
        edges
            .iter()
            .filter(|(outer, _)| *outer == from)
            .map(|&(_, inner)| longest(edges, inner, depth + 1))
            .max()
            .unwrap_or(depth)
    }
    for _ in 0..20_000 {
        let (outer, inner) = (random(12), random(12));
        if random(3) == 0 {
            nests.leave(outer, inner);
            if let Some(at) = edges.iter().position(|&edge| edge == (outer, inner)) {
                edges.swap_remove(at);
            }
        } else if edges.len() < 14 {
            edges.push((outer, inner));
            let fits = (0..12).all(|set| longest(&edges, set, 1) <= MAX_LEVELS);
            assert_eq!(nests.enter(outer, inner).is_ok(), fits, "{edges:?}");
            if !fits {
                edges.pop();
            }
        }
    }
}
