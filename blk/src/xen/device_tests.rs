use super::super::fake::{DOMAIN, FakeEvents, FakeGrants, FakeStore, FrontRing};
use super::super::front::data;
use super::super::rings::Geometry;
use super::*;
use crate::engine::Engine;
use crate::image::{Location, Spec};
use crate::io::Queue;
use crate::knobs::Knobs;
use std::sync::Arc;

const BACK: &str = "backend/qdisk/7/51712";
const FRONT: &str = "/local/domain/7/device/vbd/51712";

/// A device with its store, domain and rings, and an engine.
struct Bench {
    store: FakeStore,
    domain: Rc<FakeGrants>,
    events: Rc<FakeEvents>,
    device: Device<FakeStore>,
    rings: Rings,
    engine: Engine<Rings>,
}

impl Bench {
    fn over(store: FakeStore, domain: Rc<FakeGrants>, events: Rc<FakeEvents>) -> Self {
        let spec = Spec {
            location: Location::Ram { bytes: 1 << 20 },
            read_only: false,
            cached: false,
        };
        let image = Image::open(&spec).unwrap();
        let address = Address {
            folder: "backend/qdisk".into(),
            domain: DOMAIN,
            device: 51712,
        };
        let both = (
            domain.clone() as Rc<dyn Grants>,
            events.clone() as Rc<dyn Events>,
        );
        let device = Device::new(store.clone(), address, FRONT.into(), &image, both);
        let knobs = Arc::new(Knobs::default());
        let geometry = Geometry {
            bytes: 1 << 20,
            read_only: false,
        };
        let rings = Rings::new(
            DOMAIN,
            domain.clone(),
            events.clone(),
            geometry,
            knobs.clone(),
            Clock::start(),
        );
        Self {
            store,
            domain,
            events,
            device: device.unwrap(),
            rings,
            engine: Engine::new(image, "d", knobs, Queue::calls()).unwrap(),
        }
    }

    fn new() -> Self {
        let store = FakeStore::default();
        store.set(&format!("{BACK}/frontend"), FRONT);
        store.set(&format!("{BACK}/online"), "1");
        store.set(&format!("{BACK}/state"), "1");
        store.set(&format!("{FRONT}/state"), "1");
        Self::over(store, FakeGrants::new(64), Rc::default())
    }

    fn settle(&mut self) -> InstanceState {
        let engine = &mut self.engine;
        let drained = |rings: &mut Rings| engine.drain(rings);
        self.device.settle(&mut self.rings, drained).unwrap()
    }

    fn front(&self, values: &[(&str, &str)]) {
        for (name, value) in values {
            self.store.set(&format!("{FRONT}/{name}"), value);
        }
    }

    fn back(&self, name: &str) -> String {
        self.store.get(&format!("{BACK}/{name}"))
    }

    fn serve(&mut self) {
        self.engine.accept(&mut self.rings).unwrap();
        self.engine.reap(&mut self.rings).unwrap();
    }
}

const SIMPLE: [(&str, &str); 4] = [
    ("ring-ref", "0"),
    ("event-channel", "3"),
    ("protocol", "x86_64-abi"),
    ("state", "3"),
];

#[test]
fn a_front_end_connects_closes_and_comes_back() {
    let mut bench = Bench::new();
    assert_eq!(bench.settle(), InstanceState::Running);
    assert_eq!(bench.back("state"), "2");
    assert_eq!(bench.back("sectors"), "2048");
    assert_eq!(bench.back("feature-max-indirect-segments"), "256");
    for _ in 0..2 {
        bench.front(&SIMPLE);
        bench.settle();
        assert_eq!(
            (bench.back("state").as_str(), bench.rings.connected()),
            ("4", true)
        );
        bench.front(&[("state", "5")]);
        bench.settle();
        assert_eq!(
            (bench.back("state").as_str(), bench.rings.connected()),
            ("5", true)
        );
        bench.front(&[("state", "6")]);
        bench.settle();
        assert_eq!(
            (bench.back("state").as_str(), bench.rings.connected()),
            ("6", false)
        );
        assert_eq!(bench.domain.mapped.get(), 0);
        assert!(bench.events.bound.borrow().is_empty());
        bench.front(&[("state", "1")]);
        bench.settle();
        assert_eq!(bench.back("state"), "2");
    }
}

#[test]
fn queues_and_ring_pages_are_as_agreed() {
    let mut bench = Bench::new();
    bench.settle();
    bench.front(&[("multi-queue-num-queues", "2"), ("ring-page-order", "2")]);
    for queue in 0..2_u32 {
        for page in 0..4 {
            let name = format!("queue-{queue}/ring-ref{page}");
            bench.front(&[(&name, &(queue * 4 + page).to_string())]);
        }
        bench.front(&[(&format!("queue-{queue}/event-channel"), "5")]);
    }
    bench.front(&[("feature-persistent", "1"), ("state", "3")]);
    bench.settle();
    assert_eq!(bench.back("state"), "4");
    assert_eq!(bench.domain.mapped.get(), 8);
    assert_eq!(bench.events.bound.borrow().len(), 2);
}

#[test]
fn what_a_front_end_tells_is_bounded_and_refused_by_name() {
    // Quoted in full, the value would be longer than xenstore accepts.
    let long = "\u{1}".repeat(2000);
    for (name, value) in [
        ("ring-ref", "1000000"),
        ("ring-ref", "-1"),
        ("ring-ref", "4294967296"),
        ("event-channel", "0"),
        ("event-channel", "x"),
        ("protocol", "sparc"),
        ("protocol", &long),
        ("event-channel", &long),
        ("multi-queue-num-queues", "9"),
        ("multi-queue-num-queues", "0"),
        ("ring-page-order", "5"),
        ("feature-persistent", "2"),
    ] {
        let mut bench = Bench::new();
        bench.settle();
        bench.front(&SIMPLE);
        bench.front(&[(name, value)]);
        assert_eq!(bench.settle(), InstanceState::Running);
        assert_eq!(bench.back("state"), "5", "{name}={value}");
        let told = bench.back("error");
        let beginning: String = value.chars().take(8).collect();
        let beginning = beginning.escape_debug().to_string();
        assert!(told.contains(name) || name == "ring-ref" || name == "event-channel");
        assert!(
            value.parse::<u32>().is_ok() || told.contains(&beginning),
            "{told}"
        );
        assert!(told.len() < 500, "{told}");
        assert!(!bench.rings.connected() && bench.domain.mapped.get() == 0);
        assert!(bench.events.bound.borrow().is_empty(), "{name}={value}");
        // The device is tried again only when the front-end starts from the beginning.
        bench.store.set(&format!("{BACK}/error"), "");
        bench.settle();
        assert_eq!(bench.back("error"), "");
        bench.front(&SIMPLE);
        bench
            .store
            .remove(&format!("{FRONT}/multi-queue-num-queues"));
        bench.store.remove(&format!("{FRONT}/ring-page-order"));
        bench.store.remove(&format!("{FRONT}/feature-persistent"));
        bench.front(&[("state", "6")]);
        bench.settle();
        bench.front(&[("state", "1")]);
        bench.settle();
        bench.front(&[("state", "3")]);
        bench.settle();
        assert_eq!(bench.back("state"), "4", "after {name}={value}");
    }
}

#[test]
fn a_successor_finds_the_front_end_connected_and_does_what_was_left() {
    let mut bench = Bench::new();
    bench.settle();
    let mut front = FrontRing::new(&bench.domain, 0, 1, Abi::X86_64);
    bench.front(&SIMPLE);
    bench.settle();
    bench.front(&[("state", "4")]);
    bench.settle();
    for id in 0..3 {
        front.put(&data(Abi::X86_64, true, id, id, &[(9, 0, 0)]));
    }
    front.push();
    // The back-end is killed: its mappings and ports are gone, and xenstore is unchanged.
    let Bench { store, domain, .. } = bench;
    let mut bench = Bench::over(store, domain, Rc::default());
    bench.settle();
    assert_eq!(
        (bench.back("state").as_str(), bench.rings.connected()),
        ("4", true)
    );
    assert!(!bench.events.notified.borrow().is_empty());
    bench.serve();
    let done: Vec<_> = front.answers().iter().map(|a| (a.0, a.2)).collect();
    assert_eq!(done, [(0, 0), (1, 0), (2, 0)]);
}

#[test]
fn a_device_that_is_taken_away_ends_and_leaves_nothing() {
    // The toolstack removes the device in the proper order.
    let mut bench = Bench::new();
    bench.settle();
    bench.front(&SIMPLE);
    bench.settle();
    bench.store.set(&format!("{BACK}/online"), "0");
    assert_eq!(bench.settle(), InstanceState::Running);
    assert_eq!(
        (bench.back("state").as_str(), bench.rings.connected()),
        ("5", true)
    );
    bench.front(&[("state", "6")]);
    assert_eq!(bench.settle(), InstanceState::Ended);
    assert_eq!(bench.back("state"), "6");
    assert_eq!(bench.domain.mapped.get(), 0);
    // The guest's domain is gone, then both ends of the device.
    let mut bench = Bench::new();
    bench.settle();
    bench.front(&SIMPLE);
    bench.settle();
    bench.store.remove(FRONT);
    assert_eq!(bench.settle(), InstanceState::Running);
    assert_eq!(
        (bench.domain.mapped.get(), bench.back("state").as_str()),
        (0, "6")
    );
    bench.store.remove(BACK);
    assert_eq!(bench.settle(), InstanceState::Ended);
    assert!(bench.store.is_empty(), "nothing is written to what is gone");
}
