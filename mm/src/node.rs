//! NUMA nodes: the order in which a request tries the zones, and which zones it may use.

use crate::{
    Allocator, CpuCache, Request, Stats, ZoneId, ZoneKind,
    config::{Config, ConfigError, MAX_ZONES},
};

/// The number of NUMA nodes. Node numbers are below it. A node without memory counts too, as its
/// CPUs allocate from other nodes.
pub const MAX_NODES: usize = 32;

/// The NUMA node that a block should come from.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodePolicy {
    /// The node of the request's [`CpuCache`], or else the nearest node to it.
    Local,
    /// This node, or else the nearest node to it. A node that the configuration does not have
    /// counts as node 0.
    Prefer(u16),
    /// This node only (Linux's `__GFP_THISNODE`). The request fails rather than use another node.
    Only(u16),
}

impl NodePolicy {
    /// Returns the node whose zones are tried first by a request from a per-CPU cache of node
    /// `local`.
    const fn start(self, local: u16) -> u16 {
        match self {
            Self::Local => local,
            Self::Prefer(node) | Self::Only(node) => node,
        }
    }
}

/// The fallback order of each NUMA node: all zones, those of the nearest node first, and among the
/// zones of a node the most general kind first.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// For each node, the indices of the zones in order. Only the first `zones` entries of a row
    /// are used.
    rows: [[u8; MAX_ZONES]; MAX_NODES],
    zones: usize,
}

impl Fallback {
    /// Computes the order of the zones for each node from `config`, whose zones must have passed
    /// [`check`]. Nodes without memory have an order, too.
    pub(crate) fn new(config: &Config<'_>) -> Self {
        let nodes = config.distances.len().isqrt();
        let zones = config.zones;
        let mut rows = [[0; MAX_ZONES]; MAX_NODES];
        for (node, row) in rows.iter_mut().enumerate() {
            for (zone, place) in row.iter_mut().enumerate().take(zones.len()) {
                *place = u8::try_from(zone).unwrap_or(0);
            }
            let distance = |to: usize| {
                if node < nodes && to < nodes {
                    config.distances[node * nodes + to]
                } else {
                    u8::MAX
                }
            };
            // The sort is stable, so zones of one kind and node keep their order. Nodes at one
            // distance are tried upwards from this node, and round. Without that all nodes would
            // turn to node 0 first.
            insertion_sort(&mut row[..zones.len()], |&zone| {
                let zone = &zones[usize::from(zone)];
                let to = usize::from(zone.node);
                let round = (to + MAX_NODES - node) % MAX_NODES;
                let away = (round != 0).then_some((distance(to), round));
                (away, core::cmp::Reverse(zone.kind))
            });
        }
        Self {
            rows,
            zones: zones.len(),
        }
    }

    /// Returns all zones in the order in which requests from `node` try them. A `node` above the
    /// maximum gets the order of node 0.
    #[inline]
    fn from(&self, node: u16) -> impl Iterator<Item = ZoneId> {
        let row = self.rows.get(usize::from(node)).unwrap_or(&self.rows[0]);
        row[..self.zones]
            .iter()
            .map(|&zone| ZoneId::new(usize::from(zone)))
    }
}

/// Checks the node numbers of the zones in `config` and the number of its distances.
///
/// # Errors
/// `Distances` if the number of distances is not the square of a number of nodes up to
/// [`MAX_NODES`]. `Node` if a zone names a node that is not below [`MAX_NODES`] or has no
/// distances.
pub(crate) fn check(config: &Config<'_>) -> Result<(), ConfigError> {
    let entries = config.distances.len();
    let nodes = entries.isqrt();
    if nodes * nodes != entries || nodes > MAX_NODES {
        return Err(ConfigError::Distances(entries));
    }
    for zone in config.zones {
        let node = usize::from(zone.node);
        if node >= MAX_NODES || nodes != 0 && node >= nodes {
            return Err(ConfigError::Node(zone.node));
        }
    }
    Ok(())
}

impl Allocator<'_> {
    /// Iterates over the zones that a request from `node` tries, in order, if it accepts zones up
    /// to the kind `highest`. The zones of `node` come first, the most general kind before the
    /// others, and then the zones of the nearest other node, and so on. A `node` that is not below
    /// [`MAX_NODES`] gets the order of node 0.
    pub fn fallback(&self, node: u16, highest: ZoneKind) -> impl Iterator<Item = ZoneId> {
        let zones = self.fallback.from(node);
        zones.filter(move |&zone| self.zone(zone).zone.kind <= highest)
    }

    /// Returns the zones that `request` may use, in the order in which it tries them. `local` is
    /// the node of the per-CPU cache that makes the request.
    pub(crate) fn candidates(&self, local: u16, request: Request) -> impl Iterator<Item = ZoneId> {
        let start = request.node.start(local);
        let strict = matches!(request.node, NodePolicy::Only(_));
        self.fallback(start, request.zone)
            .filter(move |&zone| !strict || self.zone(zone).zone.node == start)
    }

    /// Returns the sums of the statistics of the zones of `node`, which are 0 if it has no zone.
    /// Reads their summaries, 8 bytes for each 64 MiB.
    pub fn node_stats(&self, node: u16) -> Stats {
        self.stats_of(|zone| self.zone(zone).zone.node == node)
    }

    /// Returns whether `zone` is on `node` or, if `node` has no memory, on the nearest node that
    /// has some.
    fn is_nearest(&self, zone: ZoneId, node: u16) -> bool {
        let on = |zone: ZoneId| self.zone(zone).zone.node;
        let nearest = self.fallback.from(node).next();
        nearest.is_some_and(|nearest| on(zone) == on(nearest))
    }

    /// Returns whether `cache` may keep frames of `zone` that its CPU frees. It may not if the zone
    /// is on another node, as the frames would be handed out to requests for the local node. It may
    /// not either if the zone has a reserve, as the frames would be handed out to requests that
    /// must leave it.
    pub(crate) fn may_keep(&self, zone: ZoneId, cache: &CpuCache) -> bool {
        self.is_nearest(zone, cache.node) && !self.zone(zone).zone.is_protected()
    }

    /// Returns whether frames of `zone` in `cache` may serve `request`: the zone is on the node
    /// that the request prefers, of a kind that it accepts, and keeps no reserve from it.
    pub(crate) fn suits(&self, zone: ZoneId, cache: &CpuCache, request: Request) -> bool {
        let of = self.zone(zone).zone;
        let node = request.node.start(cache.node);
        let near = match request.node {
            NodePolicy::Only(_) => of.node == node,
            NodePolicy::Local | NodePolicy::Prefer(_) => self.is_nearest(zone, node),
        };
        near && of.kind <= request.zone && of.lowmem_reserve.from(request.zone) == 0
    }
}

/// Sorts `items` by `key`. Stable, and meant for a few items.
fn insertion_sort<T: Copy, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && key(&items[at - 1]) > key(&items[at]) {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}
