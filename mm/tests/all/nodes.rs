//! Tests of NUMA nodes against a model: the zone that a request gets its block from.

use crate::arena::{range, with};
use ebb_mm::{
    AllocError, Allocator, Config, ConfigError, CpuCache, Frame, FrameRange, MAX_NODES, Mobility,
    NodePolicy, Order, Request, Reserve, Watermarks, ZoneConfig, ZoneId, ZoneKind, metadata_layout,
};
use proptest::prelude::*;

/// The number of frames of one zone: 64 MiB.
const TREE: u64 = 1 << 14;
/// The number of frames in 16 MiB, the limit of ISA DMA.
const DMA: u64 = 1 << 12;

#[derive(Clone, Debug)]
struct Machine {
    /// The kind and the node of each zone. A zone has one pageblock below 16 MiB, or 64 MiB above.
    zones: Vec<(ZoneKind, u16)>,
    /// The distance table, which is square or empty.
    distances: Vec<u8>,
    /// The lowmem reserve ratio of each kind. 0: no reserve.
    ratios: [u64; ZoneKind::COUNT],
}

impl Machine {
    /// Returns a machine whose zones have no lowmem reserve.
    fn plain(zones: Vec<(ZoneKind, u16)>, distances: Vec<u8>) -> Self {
        Self {
            zones,
            distances,
            ratios: [0; ZoneKind::COUNT],
        }
    }

    fn ranges(&self) -> Vec<[FrameRange; 1]> {
        let zones = (0_u64..).zip(&self.zones);
        // No zone begins at a tree: its first tree has a part of the zone before.
        zones
            .map(|(zone, &(kind, _))| match kind {
                ZoneKind::Dma => [range(zone * 512, 512)],
                ZoneKind::Dma32 => [range(DMA + zone * TREE, TREE)],
                ZoneKind::Normal => [range((1 << 20) + DMA + zone * TREE, TREE)],
            })
            .collect()
    }

    /// Returns the frames that a zone keeps from requests for zones up to kind `highest`.
    fn kept(&self, zone: usize, highest: ZoneKind) -> u64 {
        let (kind, node) = self.zones[zone];
        let ratio = self.ratios[kind as usize];
        let above = self.zones.iter().zip(self.ranges());
        let above = above.filter(|((of, on), _)| *on == node && *of > kind && *of <= highest);
        let frames: u64 = above.map(|(_, [range])| range.frames).sum();
        frames.checked_div(ratio).unwrap_or(0)
    }

    fn configs<'a>(&self, ranges: &'a [[FrameRange; 1]]) -> Vec<ZoneConfig<'a>> {
        let zones = self.zones.iter().zip(ranges);
        zones
            .map(|(&(kind, node), ranges)| ZoneConfig { kind, node, ranges })
            .collect()
    }

    fn with<R>(&self, test: impl FnOnce(&Allocator<'_>) -> R) -> R {
        let ranges = self.ranges();
        let zones = self.configs(&ranges);
        with(
            &Config::new(&zones).with_distances(&self.distances),
            &(),
            |a| {
                for kind in ZoneKind::ALL {
                    a.set_lowmem_reserve_ratio(kind, self.ratios[kind as usize]);
                }
                test(a)
            },
        )
    }

    /// Returns the distance between two nodes, computed in the simplest way.
    fn distance(&self, from: u16, to: u16) -> u32 {
        let side = (0..=MAX_NODES)
            .find(|side| side * side == self.distances.len())
            .expect("a square");
        let (from, to) = (usize::from(from), usize::from(to));
        if from == to {
            0
        } else if from < side && to < side {
            1 + u32::from(self.distances[from * side + to])
        } else {
            256
        }
    }

    /// Returns the zones that a request tries, in order.
    fn order(&self, from: u16, request: Request) -> Vec<usize> {
        let start = match request.node {
            NodePolicy::Local => from,
            NodePolicy::Prefer(node) | NodePolicy::Only(node) => node,
        };
        let mut order = Vec::new();
        let mut order_of_nodes: Vec<u16> = nodes().collect();
        order_of_nodes.rotate_left(usize::from(start));
        order_of_nodes.sort_by_key(|&to| self.distance(start, to));
        for node in order_of_nodes {
            if matches!(request.node, NodePolicy::Only(_)) && node != start {
                continue;
            }
            for kind in [ZoneKind::Normal, ZoneKind::Dma32, ZoneKind::Dma] {
                let here = self.zones.iter().enumerate();
                let here = here.filter(|(_, zone)| **zone == (kind, node) && kind <= request.zone);
                order.extend(here.map(|(zone, _)| zone));
            }
        }
        order
    }
}

fn nodes() -> std::ops::Range<u16> {
    0..u16::try_from(MAX_NODES).expect("few nodes")
}

fn kind() -> impl Strategy<Value = ZoneKind> {
    proptest::sample::select(ZoneKind::ALL.to_vec())
}

fn machine() -> impl Strategy<Value = Machine> {
    let zones = proptest::collection::vec((kind(), 0..5u16), 1..=8);
    let distances = prop_oneof![Just(0usize), Just(5usize), Just(7)]
        .prop_flat_map(|side| proptest::collection::vec(10..40u8, side * side));
    let ratio = || proptest::sample::select(vec![0, 1, 3, 100]);
    (zones, distances, ratio(), ratio()).prop_map(|(zones, distances, dma, dma32)| Machine {
        zones,
        distances,
        // No kind is above `Normal`.
        ratios: [dma, dma32, 1],
    })
}

/// One step of the test.
#[derive(Clone, Debug)]
enum Event {
    /// The cache of a node allocates a block.
    Take {
        from: u16,
        zone: ZoneKind,
        node: NodePolicy,
        reserve: Reserve,
    },
    /// The cache of a node frees one of the blocks in use.
    Give { which: usize, from: u16 },
}

fn event() -> impl Strategy<Value = Event> {
    let node = prop_oneof![
        3 => Just(NodePolicy::Local),
        1 => (0..7u16).prop_map(NodePolicy::Prefer),
        1 => (0..7u16).prop_map(NodePolicy::Only),
    ];
    let reserve = prop_oneof![Just(Reserve::Keep), Just(Reserve::Use)];
    let take =
        (0..7u16, kind(), node, reserve).prop_map(|(from, zone, node, reserve)| Event::Take {
            from,
            zone,
            node,
            reserve,
        });
    let give = (any::<usize>(), 0..7u16).prop_map(|(which, from)| Event::Give { which, from });
    prop_oneof![3 => take, 1 => give]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whole pageblocks, so that the free memory of each zone is known: 32 at first, or one.
    #[test]
    fn blocks_come_from_the_nearest_zone_that_has_one(
        machine in machine(),
        order in 9..=10u8,
        events in proptest::collection::vec(event(), 1..200),
    ) {
        let order = Order::new(order).expect("an order");
        machine.with(|a| {
            let marks = Watermarks { min: 2 * 512, low: 8 * 512, high: 10 * 512 };
            for zone in a.zone_ids() {
                a.set_watermarks(zone, marks).expect("rising marks");
            }
            let ranges = machine.ranges();
            let mut free: Vec<_> = ranges.iter().map(|[range]| range.frames).collect();
            let mut caches: Vec<_> = (0..7).map(CpuCache::on_node).collect();
            let mut held: Vec<(Frame, usize)> = Vec::new();
            let zone_of = |frame: Frame| {
                ranges.iter().position(|range| range[0].contains(frame)).expect("a managed frame")
            };
            for event in events {
                match event {
                    Event::Take { from, zone, node, reserve } => {
                        let request = Request::new(order, Mobility::Movable)
                            .zone(zone).node(node).reserve(reserve);
                        let candidates = machine.order(from, request);
                        let above = |mark: u64| {
                            let mut zones = candidates.iter();
                            let floor = |of: usize| mark + machine.kept(of, zone);
                            zones.find(|&&of| free[of] >= floor(of) + order.frames()).copied()
                        };
                        let any = || {
                            let mut zones = candidates.iter();
                            zones.find(|&&of| free[of] >= order.frames()).copied()
                        };
                        let expected = above(marks.low).or_else(|| match reserve {
                            Reserve::Keep => above(marks.min),
                            Reserve::Use => any(),
                        });
                        let cache = &mut caches[usize::from(from)];
                        let got = a.allocate(cache, request);
                        prop_assert_eq!(got.ok().map(zone_of), expected);
                        match got {
                            Ok(frame) => {
                                free[zone_of(frame)] -= order.frames();
                                held.push((frame, zone_of(frame)));
                            }
                            Err(error) => prop_assert_eq!(
                                error,
                                AllocError::Exhausted { order, zone }
                            ),
                        }
                    }
                    Event::Give { which, from } if !held.is_empty() => {
                        let (frame, zone) = held.swap_remove(which % held.len());
                        a.free(&mut caches[usize::from(from)], frame, order);
                        free[zone] += order.frames();
                    }
                    Event::Give { .. } => {}
                }
                // Frames in caches, and changes that the zones do not know of, must not matter.
                caches.iter_mut().for_each(|cache| a.drain(cache));
            }
            for (frame, _) in held {
                a.free(&mut caches[0], frame, order);
            }
            caches.iter_mut().for_each(|cache| a.drain(cache));
            a.validate().expect("valid");
            Ok(())
        })?;
    }

    /// Requests from every node try the zones in the order of the model.
    #[test]
    fn the_order_of_zones_is_that_of_the_model(machine in machine()) {
        machine.with(|a| {
            for node in nodes() {
                for kind in ZoneKind::ALL {
                    let request = Request::new(Order::BASE, Mobility::Movable).zone(kind);
                    let order: Vec<_> = a.fallback(node, kind).map(ZoneId::index).collect();
                    prop_assert_eq!(order, machine.order(node, request));
                }
            }
            Ok(())
        })?;
    }
}

/// Calls `test` with nodes 0 and 1, with one zone of 64 MiB each.
fn two_nodes(test: impl FnOnce(&Allocator<'_>)) {
    let zones = vec![(ZoneKind::Normal, 0), (ZoneKind::Normal, 1)];
    let distances = vec![10, 20, 20, 10];
    Machine::plain(zones, distances).with(test);
}

fn node_of(frame: Frame) -> u64 {
    (frame.number() - DMA - (1 << 20)) / TREE
}

#[test]
fn single_frames_stay_on_their_node() {
    two_nodes(|a| {
        let request = Request::new(Order::BASE, Mobility::Movable);
        let mut caches = [CpuCache::on_node(0), CpuCache::on_node(1)];
        // More frames than a cache holds, so that many bitmap words are used.
        let frames = [0, 1].map(|node| {
            let cache = &mut caches[node];
            let mut take = || a.allocate(cache, request).expect("memory");
            let frames: Vec<_> = (0..1000).map(|_| take()).collect();
            assert!(frames.iter().all(|&frame| node_of(frame) == node as u64));
            frames
        });
        // Frames freed on the other node must not be allocated there.
        for (node, frames) in frames.into_iter().enumerate() {
            let cache = &mut caches[1 - node];
            for frame in frames {
                a.free(cache, frame, Order::BASE);
                let again = a.allocate(cache, request).expect("memory");
                assert_eq!(node_of(again), 1 - node as u64);
                a.free(cache, again, Order::BASE);
            }
        }
        caches.iter_mut().for_each(|cache| a.drain(cache));
        a.validate().expect("valid");
    });
}

#[test]
fn a_cache_keeps_no_whole_block_of_another_node() {
    two_nodes(|a| {
        let mut cache = CpuCache::on_node(0);
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable);
        let there = request.node(NodePolicy::Only(1));
        let block = a.allocate(&mut cache, there).expect("memory");
        assert_eq!(node_of(block), 1);
        a.free(&mut cache, block, Order::PAGEBLOCK);
        assert_eq!(cache.held(), 0);
        let own = a.allocate(&mut cache, request).expect("memory");
        assert_eq!(node_of(own), 0);
        a.free(&mut cache, own, Order::PAGEBLOCK);
        assert_eq!(cache.held(), 512);
        let strict = request.node(NodePolicy::Only(1));
        let block = a.allocate(&mut cache, strict).expect("memory");
        assert_eq!(node_of(block), 1);
        a.free(&mut cache, block, Order::PAGEBLOCK);
        a.drain(&mut cache);
        a.validate().expect("valid");
    });
}

#[test]
fn a_strict_request_fails_while_the_other_node_has_memory() {
    two_nodes(|a| {
        let mut cache = CpuCache::on_node(0);
        for order in [Order::BASE, Order::PAGEBLOCK] {
            let any = Request::new(order, Mobility::Movable).reserve(Reserve::Use);
            let strict = any.node(NodePolicy::Only(0));
            let mut held = Vec::new();
            while let Ok(frame) = a.allocate(&mut cache, strict) {
                assert_eq!(node_of(frame), 0);
                held.push(frame);
            }
            assert_eq!(held.len() as u64, TREE / order.frames());
            assert_eq!(a.node_stats(0).free_frames, 0);
            assert_eq!(a.node_stats(1).free_frames, TREE);
            let elsewhere = a.allocate(&mut cache, any).expect("node 1 has memory");
            assert_eq!(node_of(elsewhere), 1);
            // Frames of node 1 in the cache do not count as those of node 0.
            a.allocate(&mut cache, strict)
                .expect_err("node 0 is used up");
            held.push(elsewhere);
            for frame in held {
                a.free(&mut cache, frame, order);
            }
            a.drain(&mut cache);
        }
        a.validate().expect("valid");
    });
}

#[test]
fn a_node_without_memory_uses_the_nearest_and_keeps_what_it_frees() {
    let zones = vec![(ZoneKind::Normal, 0), (ZoneKind::Normal, 1)];
    // Node 2 is nearer to node 1.
    let distances = vec![10, 20, 40, 20, 10, 30, 40, 30, 10];
    Machine::plain(zones, distances).with(|a| {
        let mut cache = CpuCache::on_node(2);
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable);
        let block = a.allocate(&mut cache, request).expect("memory");
        assert_eq!(node_of(block), 1);
        a.free(&mut cache, block, Order::PAGEBLOCK);
        assert_eq!(cache.held(), 512);
        a.drain(&mut cache);
    });
}

#[test]
fn what_is_no_machine_is_refused() {
    let ranges = [range(0, TREE)];
    let zone = |node| {
        [ZoneConfig {
            kind: ZoneKind::Dma32,
            node,
            ranges: &ranges,
        }]
    };
    let error = |node: u16, distances: &[u8]| {
        let zones = zone(node);
        let config = Config::new(&zones).with_distances(distances);
        metadata_layout(&config).err()
    };
    assert_eq!(error(0, &[10]), None);
    assert_eq!(error(1, &[10]), Some(ConfigError::Node(1)));
    assert_eq!(error(0, &[10, 20]), Some(ConfigError::Distances(2)));
    assert_eq!(
        error(0, &[10; 33 * 33]),
        Some(ConfigError::Distances(33 * 33))
    );
    assert_eq!(error(32, &[]), Some(ConfigError::Node(32)));
    assert_eq!(error(31, &[]), None);
}
