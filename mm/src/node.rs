//! NUMA nodes: in which order the zones are tried, and which of them a request may use.

use crate::{
    Allocator, Front, Request, Stats, ZoneKind,
    config::{Config, ConfigError, MAX_ZONES},
};

/// Nodes are numbered below this. Those without memory, whose CPUs have fronts all the same, count.
pub const MAX_NODES: usize = 32;

/// Which node a block should come from.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodePolicy {
    /// The node of the front, else the nearest to it.
    Local,
    /// This node, else the nearest to it. One that the configuration does not know is as node 0.
    Prefer(u16),
    /// This node alone (Linux's `__GFP_THISNODE`): the request fails rather than go elsewhere.
    Only(u16),
}

impl NodePolicy {
    /// The node from which on zones are tried, for a front of node `local`.
    const fn start(self, local: u16) -> u16 {
        match self {
            Self::Local => local,
            Self::Prefer(node) | Self::Only(node) => node,
        }
    }
}

/// For each node all zones, nearest node first, and of each node the most general zone first.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// Zones by their number; the first `zones` of each row.
    rows: [[u8; MAX_ZONES]; MAX_NODES],
    zones: usize,
}

impl Fallback {
    /// The order that follows from a configuration whose zones are known to be valid.
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
            // Stable, so that zones of one kind and node keep their order. Nodes at one distance
            // follow each other from this one on, round: else all would turn to node 0 first.
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

    /// All zones, in the order in which requests from this node try them.
    #[inline]
    fn from(&self, node: u16) -> &[u8] {
        let row = self.rows.get(usize::from(node)).unwrap_or(&self.rows[0]);
        &row[..self.zones]
    }
}

/// Whether the nodes of a configuration's zones are known, and the distances between them a square.
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
    /// The zones that requests for at most this kind try, in their order, on behalf of a node: its
    /// own, the most general first, then those of the nearest other node, and so on.
    pub fn fallback(&self, node: u16, highest: ZoneKind) -> impl Iterator<Item = usize> {
        let zones = self.fallback.from(node).iter();
        zones
            .map(|&zone| usize::from(zone))
            .filter(move |&zone| self.zone(zone).zone.kind <= highest)
    }

    /// Zones that a request of a front of node `local` may use, in the order in which it tries them.
    pub(crate) fn candidates(&self, local: u16, request: Request) -> impl Iterator<Item = usize> {
        let start = request.node.start(local);
        let strict = matches!(request.node, NodePolicy::Only(_));
        self.fallback(start, request.zone)
            .filter(move |&zone| !strict || self.zone(zone).zone.node == start)
    }

    /// The figures of one node's zones. Reads their summaries: 8 bytes for each 64 MiB.
    pub fn node_stats(&self, node: u16) -> Stats {
        self.stats_of(|zone| self.zone(zone).zone.node == node)
    }

    /// Whether a zone is on this node, or on the one with memory that is nearest to it.
    fn is_nearest(&self, zone: usize, node: u16) -> bool {
        let on = |zone: usize| self.zone(zone).zone.node;
        let nearest = self.fallback.from(node).first();
        nearest.is_some_and(|&nearest| on(zone) == on(usize::from(nearest)))
    }

    /// Whether a front may keep what it frees of this zone: no request for its own node must get
    /// memory of another while there is some, and none what the zone keeps from it.
    pub(crate) fn may_keep(&self, zone: usize, front: &Front) -> bool {
        self.is_nearest(zone, front.node) && !self.zone(zone).zone.is_protected()
    }

    /// Whether frames of this zone that a front holds are as good for a request as any.
    pub(crate) fn suits(&self, zone: usize, front: &Front, request: Request) -> bool {
        let of = self.zone(zone).zone;
        let node = request.node.start(front.node);
        let near = match request.node {
            NodePolicy::Only(_) => of.node == node,
            NodePolicy::Local | NodePolicy::Prefer(_) => self.is_nearest(zone, node),
        };
        near && of.kind <= request.zone && of.lowmem_reserve.from(request.zone) == 0
    }
}

/// Stable, for a handful of items.
fn insertion_sort<T: Copy, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && key(&items[at - 1]) > key(&items[at]) {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}
