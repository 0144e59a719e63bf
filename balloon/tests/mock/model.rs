//! Random calls against a random device. Each page stays in exactly one set, whether or not the
//! device follows the protocol. If it does, driver, device and guest agree.

use crate::device::Role;
use crate::guest::Guest;
use crate::hal::TestHal;
use crate::transport::{Driver, Machine};
use ebb_balloon::{Exchange, Features, Options, Stats};
use proptest::prelude::*;
use std::ops::ControlFlow;

const PAGES: u32 = 700;

#[derive(Clone, Debug)]
enum Event {
    Target(u32),
    Reserve(usize),
    Step(u32),
    Deflate {
        pages: u32,
        patience: u8,
    },
    StartExchange(u32),
    PollExchange,
    /// The caller of the exchange polls it no more.
    GiveUpExchange,
    Work(Role),
    AtOnce(bool),
    AskStats,
    AnswerStats,
    Interrupt,
    /// In this and the following events the device violates the protocol.
    Used {
        role: Role,
        id: u32,
        len: u32,
    },
    UsedIndex {
        role: Role,
        index: u16,
    },
    Targets(Vec<u32>),
    Interrupts(u32),
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Inflate), Just(Role::Deflate)]
}

fn any_role() -> impl Strategy<Value = Role> {
    prop_oneof![role(), Just(Role::Stats), Just(Role::Reporting)]
}

fn honest() -> BoxedStrategy<Event> {
    prop_oneof![
        3 => (0..2 * PAGES).prop_map(Event::Target),
        1 => (0..PAGES as usize).prop_map(Event::Reserve),
        6 => (0..1000u32).prop_map(Event::Step),
        2 => (0..400u32, 0..4u8).prop_map(|(pages, patience)| Event::Deflate { pages, patience }),
        2 => (0..400u32).prop_map(Event::StartExchange),
        3 => Just(Event::PollExchange),
        1 => Just(Event::GiveUpExchange),
        6 => role().prop_map(Event::Work),
        1 => any::<bool>().prop_map(Event::AtOnce),
        1 => Just(Event::AskStats),
        1 => Just(Event::AnswerStats),
        1 => Just(Event::Interrupt),
    ]
    .boxed()
}

fn hostile() -> BoxedStrategy<Event> {
    let id = prop_oneof![0..6u32, any::<u32>()];
    prop_oneof![
        20 => honest(),
        1 => (any_role(), id, any::<u32>())
            .prop_map(|(role, id, len)| Event::Used { role, id, len }),
        1 => (any_role(), prop_oneof![0..6u16, any::<u16>()])
            .prop_map(|(role, index)| Event::UsedIndex { role, index }),
        1 => prop::collection::vec(any::<u32>(), 0..4).prop_map(Event::Targets),
        1 => any::<u32>().prop_map(Event::Interrupts),
    ]
    .boxed()
}

fn start(features: Features) -> (Machine, Driver, Guest) {
    let machine = Machine::new(features | Features::STATS_VQ | Features::REPORTING);
    let stats = Stats {
        free_bytes: Some(1),
        ..Stats::default()
    };
    let driver = machine
        .start(Options {
            stats: Some(stats),
            ..Options::default()
        })
        .unwrap();
    (machine, driver, Guest::with_pages(PAGES))
}

/// Carries out an event. `exchange` is the exchange that is polled. Returns the driver's error.
fn play(
    event: Event,
    machine: &Machine,
    driver: &mut Driver,
    guest: &mut Guest,
    exchange: &mut Option<Exchange>,
) -> Result<(), ebb_balloon::BalloonError> {
    match event {
        Event::Target(pages) => machine.device().set_target(pages),
        Event::Reserve(pages) => guest.reserve = pages,
        Event::Step(budget) => {
            let before = guest.moving.len() + guest.ballooned.len();
            driver.step(guest, budget)?;
            let after = guest.moving.len() + guest.ballooned.len();
            assert!(after <= before + budget as usize);
        }
        Event::Deflate {
            pages,
            mut patience,
        } => {
            let wait = || match patience.checked_sub(1) {
                Some(left) => {
                    patience = left;
                    machine.device().work_on(Role::Deflate);
                    ControlFlow::Continue(())
                }
                None => ControlFlow::Break(()),
            };
            match driver.deflate(guest, pages, wait) {
                Ok(_) | Err(ebb_balloon::BalloonError::DeflateNotAllowed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Event::StartExchange(limit) => {
            if exchange.is_none() {
                *exchange = driver.start_exchange(guest, limit)?;
            }
        }
        Event::PollExchange => {
            if let Some(running) = exchange.as_mut()
                && driver.poll_exchange(running, guest)?
            {
                *exchange = None;
            }
        }
        Event::GiveUpExchange => *exchange = None,
        Event::Work(role) => {
            machine.device().work_on(role);
        }
        Event::AtOnce(at_once) => machine.device().at_once = at_once,
        Event::AskStats => {
            machine.device().ask_stats();
        }
        Event::AnswerStats => {
            driver.answer_stats(|| Stats {
                free_bytes: Some(9),
                ..Stats::default()
            })?;
        }
        Event::Interrupt => {
            driver.ack_interrupt();
        }
        Event::Used { role, id, len } => machine.device().ring(role).push(id, len),
        Event::UsedIndex { role, index } => machine.device().ring(role).set_used(index),
        Event::Targets(targets) => machine.device().targets.extend(targets),
        Event::Interrupts(bits) => machine.device().interrupt = bits,
    }
    Ok(())
}

fn features() -> impl Strategy<Value = Features> {
    (any::<bool>(), any::<bool>()).prop_map(|(tell, oom)| {
        let mut features = Features::empty();
        features.set(Features::MUST_TELL_HOST, tell);
        features.set(Features::DEFLATE_ON_OOM, oom);
        features
    })
}

fn pages_of(guest: &Guest) -> usize {
    guest.spare.len() + guest.moving.len() + guest.ballooned.len()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn honest_devices_agree(
        features in features(),
        events in prop::collection::vec(honest(), 1..80),
    ) {
        let (machine, mut driver, mut guest) = start(features);
        let mut exchange = None;
        for event in events {
            play(event, &machine, &mut driver, &mut guest, &mut exchange).unwrap();
            // The device learns of the size after an exchange when the old pages have left.
            if !driver.is_busy() {
                prop_assert_eq!(machine.device().actual(), driver.actual_pages());
            }
            prop_assert_eq!(pages_of(&guest), PAGES as usize);
        }
        // After all requests have finished, driver, device and guest agree.
        machine.device().at_once = true;
        machine.device().work_on(Role::Inflate);
        machine.device().work_on(Role::Deflate);
        guest.reserve = 0;
        machine.device().set_target(123);
        let progress = driver.step(&mut guest, u32::MAX).unwrap();
        prop_assert_eq!(progress.stop, ebb_balloon::Stop::OnTarget);
        prop_assert_eq!(&machine.device().balloon, &guest.ballooned_numbers());
        prop_assert_eq!(guest.ballooned.len(), 123);
        prop_assert!(guest.moving.is_empty());
        driver.reset(&mut guest).unwrap();
        prop_assert_eq!(guest.spare.len(), PAGES as usize);
        drop(driver);
        prop_assert_eq!(TestHal::pages(), 0);
    }

    #[test]
    fn hostile_devices_harm_only_themselves(
        features in features(),
        events in prop::collection::vec(hostile(), 1..120),
    ) {
        let (machine, mut driver, mut guest) = start(features);
        machine.device().lies = true;
        let mut exchange = None;
        for event in events {
            let _ = play(event, &machine, &mut driver, &mut guest, &mut exchange);
            prop_assert_eq!(pages_of(&guest), PAGES as usize);
        }
        driver.reset(&mut guest).unwrap();
        prop_assert_eq!(guest.spare.len(), PAGES as usize);
    }
}
