//! Finds cycles in a graph of imports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The nodes of a graph (files or folders), each with the nodes that it uses.
pub(crate) type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Returns the cycles of `graph`: one of the shortest for each set of nodes that all reach each
/// other. A cycle is the list of its nodes; its first node is also its last.
pub(crate) fn cycles<'a>(graph: &Graph<'a>) -> Vec<Vec<&'a str>> {
    let mut reversed = Graph::new();
    for (&from, ends) in graph {
        for &to in ends {
            reversed.entry(to).or_default().insert(from);
        }
    }
    let mut done: BTreeSet<&'a str> = BTreeSet::new();
    let mut found = Vec::new();
    for &start in graph.keys() {
        if done.contains(start) {
            continue;
        }
        let reached = reach(graph, start);
        if let Some(way) = way_back(start, &reached) {
            let reaching = reach(&reversed, start);
            done.extend(reached.keys().filter(|&node| reaching.contains_key(node)));
            found.push(way);
        }
    }
    found
}

/// Returns every node that can be reached from `start`, with the node before it on a shortest path.
fn reach<'a>(graph: &Graph<'a>, start: &'a str) -> BTreeMap<&'a str, &'a str> {
    let mut from = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(node) = waiting.pop_front() {
        for &next in graph.get(node).into_iter().flatten() {
            from.entry(next).or_insert_with(|| {
                waiting.push_back(next);
                node
            });
        }
    }
    from
}

/// Returns a shortest cycle through `start`. Returns `None` if there is none.
fn way_back<'a>(start: &'a str, from: &BTreeMap<&'a str, &'a str>) -> Option<Vec<&'a str>> {
    let mut way = vec![start];
    let mut at = *from.get(start)?;
    while at != start {
        way.push(at);
        at = *from.get(at)?;
    }
    way.push(start);
    way.reverse();
    Some(way)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph<'a>(imports: &[(&'a str, &'a str)]) -> Graph<'a> {
        let mut graph = Graph::new();
        for &(from, to) in imports {
            graph.entry(from).or_default().insert(to);
        }
        graph
    }

    #[test]
    fn a_way_down_is_no_cycle() {
        assert!(cycles(&graph(&[("a", "b"), ("a", "c"), ("b", "c")])).is_empty());
    }

    #[test]
    fn each_set_of_cycles_is_told_once_by_a_shortest_one() {
        let tangled = graph(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "d"),
            ("d", "a"),
            ("b", "a"),
            ("d", "x"),
            ("x", "y"),
            ("y", "x"),
        ]);
        assert_eq!(cycles(&tangled), [vec!["a", "b", "a"], vec!["x", "y", "x"]]);
    }
}
