//! Tests of the registry with given times.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

mod with_fake_time {
    use super::super::*;
    use crate::pool::{Squeeze, SqueezeTimes};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::thread;
    use std::time::Duration;

    #[derive(Default)]
    struct Instance {
        events: Vec<Micros>,
        squeeze: Squeeze,
    }

    impl ReclaimMemory for Instance {
        fn reclaim_memory(&mut self, event: Micros) {
            self.events.push(event);
            let ten = Duration::from_millis(10);
            let times = SqueezeTimes {
                every_batch: ten,
                all: ten,
            };
            self.squeeze.begin(event, times);
        }
    }

    fn readable(registration: &Registration) -> bool {
        let mut fds = [PollFd::new(registration, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    #[test]
    fn one_event_asks_each_once() {
        let registry = Registry::default();
        let mut members: Vec<_> = (0..5)
            .map(|i| {
                (
                    registry.register(&format!("disk{i}")).unwrap(),
                    Instance::default(),
                )
            })
            .collect();
        assert_eq!(registry.pressure(Micros(7)), 5);
        for (registration, instance) in &mut members {
            assert!(readable(registration));
            assert!(registration.deliver(instance));
            assert!(!readable(registration));
            assert!(!registration.deliver(instance));
            assert_eq!(instance.events, [Micros(7)]);
        }
    }

    #[test]
    fn a_thousand_instances_do_not_push_one_anothers_end_out() {
        let registry = Registry::default();
        let mut members: Vec<_> = (0..1000)
            .map(|_| (registry.register("disk").unwrap(), Instance::default()))
            .collect();
        registry.pressure(Micros(1_000));
        // The callbacks run a millisecond apart, as slow ones would.
        for (registration, instance) in &mut members {
            registration.deliver(instance);
        }
        for (_, instance) in &members {
            assert!(instance.squeeze.active(Micros(10_999)));
            assert!(!instance.squeeze.active(Micros(11_000)));
        }
    }

    #[test]
    fn one_that_never_looks_delays_no_other() {
        let registry = Registry::default();
        let dead = registry.register("dead").unwrap();
        let mut live = registry.register("live").unwrap();
        let mut instance = Instance::default();
        for at in 1..=100_000 {
            registry.pressure(Micros(at));
        }
        assert!(live.deliver(&mut instance));
        assert_eq!(instance.events, [Micros(100_000)]);
        assert!(readable(&dead));
    }

    #[test]
    fn a_name_asks_its_own_only() {
        let registry = Registry::default();
        let mut a = registry.register("a").unwrap();
        let mut b = registry.register("b").unwrap();
        assert_eq!(registry.squeeze("a", Micros(3)), 1);
        assert_eq!(registry.squeeze("c", Micros(3)), 0);
        assert!(a.deliver(&mut Instance::default()));
        assert!(!b.deliver(&mut Instance::default()));
    }

    #[test]
    fn a_waker_wakes_without_an_event() {
        let registry = Registry::default();
        let mut a = registry.register("a").unwrap();
        a.waker().wake();
        assert!(readable(&a));
        assert!(!a.deliver(&mut Instance::default()));
    }

    #[test]
    fn a_ping_is_answered_when_the_work_is_done() {
        let registry = Registry::default();
        let mut a = registry.register("a").unwrap();
        let ping = || registry.ping(|name| name == "a");
        let before = ping();
        registry.squeeze("a", Micros(3));
        assert!(a.deliver(&mut Instance::default()));
        assert_eq!(before.wait_unanswered(Duration::ZERO), ["a"]);
        let (before, after) = (ping(), ping());
        assert!(!a.deliver(&mut Instance::default()));
        let later = ping();
        a.confirm();
        for answered in [before, after] {
            assert!(answered.wait_unanswered(Duration::ZERO).is_empty());
        }
        // This one came after the last delivery.
        assert!(a.is_asked());
        assert_eq!(later.wait_unanswered(Duration::ZERO), ["a"]);
    }

    #[test]
    fn members_come_and_go_while_events_are_posted() {
        let registry = Registry::default();
        let poster = {
            let registry = registry.clone();
            thread::spawn(move || {
                for at in 1..=5_000 {
                    registry.pressure(Micros(at));
                }
            })
        };
        let joiners: Vec<_> = (0..4)
            .map(|_| {
                let registry = registry.clone();
                thread::spawn(move || {
                    for _ in 0..500 {
                        let mut registration = registry.register("x").unwrap();
                        registration.deliver(&mut Instance::default());
                    }
                })
            })
            .collect();
        for joiner in joiners {
            joiner.join().unwrap();
        }
        poster.join().unwrap();
        assert!(registry.is_empty());
    }
}
