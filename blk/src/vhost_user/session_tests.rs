//! Tests of single messages, with given times.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::engine::Engine;
use crate::image::{Image, Location, Spec};
use crate::io::Queue;
use crate::knobs::Knobs;
use std::io::{Read, Write};
use std::sync::Arc;

/// A device and a session, with the front-end's end of the socket.
struct Both {
    session: Session,
    device: Device,
    front: UnixStream,
}

impl Both {
    fn new() -> Self {
        let image = Image::open(&Spec {
            location: Location::Ram { bytes: 1 << 20 },
            read_only: false,
            cached: false,
        });
        let knobs = Arc::new(Knobs::default());
        let engine = Engine::new(image.unwrap(), "disk", knobs, Queue::calls()).unwrap();
        let (front, back) = UnixStream::pair().unwrap();
        front.set_nonblocking(true).unwrap();
        let mut both = Self {
            session: Session::new(back, &Reader::of_process(None).unwrap(), None).unwrap(),
            device: Device::new(engine),
            front,
        };
        both.ask(FrontendReq::GET_FEATURES, &[]);
        both.ask(FrontendReq::SET_FEATURES, &(1_u64 << 30).to_ne_bytes());
        let agreed = Device::protocol_features().bits().to_ne_bytes();
        both.ask(FrontendReq::SET_PROTOCOL_FEATURES, &agreed);
        both.answers();
        both
    }

    /// Sends a message that asks for an answer, and returns the resulting event.
    fn ask(&mut self, code: FrontendReq, body: &[u8]) -> Event {
        let length = u32::try_from(body.len()).unwrap();
        let header = [u32::from(code), 9, length].map(u32::to_ne_bytes);
        let message = [&header.concat(), body].concat();
        self.front.write_all(&message).unwrap();
        self.session.attend(&mut self.device, Micros(1))
    }

    fn answers(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let read = self.front.read(&mut bytes).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }
}

fn pair(first: u32, second: u32) -> Vec<u8> {
    [first, second].map(u32::to_ne_bytes).concat()
}

#[test]
fn reasons_name_the_message_and_what_was_asked_for() {
    use FrontendReq as Ask;
    let number = |bit: u32| (1_u64 << bit).to_ne_bytes().to_vec();
    for (code, body, name, value) in [
        (
            Ask::SET_VRING_NUM,
            pair(3, 70_000),
            "SET_VRING_NUM",
            "70000",
        ),
        (
            Ask::SET_VRING_BASE,
            pair(3, 70_000),
            "SET_VRING_BASE",
            "70000",
        ),
        (Ask::SET_VRING_ENABLE, pair(17, 1), "SET_VRING_ENABLE", "17"),
        (
            Ask::SET_FEATURES,
            number(60),
            "SET_FEATURES",
            "0x1000000000000000",
        ),
        (
            Ask::SET_PROTOCOL_FEATURES,
            number(63),
            "SET_PROTOCOL_FEATURES",
            "0x8000000000000000",
        ),
    ] {
        let mut both = Both::new();
        let Event::Refused(why) = both.ask(code, &body) else {
            panic!("{name} is not refused");
        };
        assert!(why.contains(name) && why.contains(value), "{why}");
        assert_eq!(both.answers()[12..], 1_u64.to_ne_bytes());
    }
    let inflight = [vec![0; 16], pair(64 << 16 | 17, 0)].concat();
    for (code, body, name, value) in [
        (Ask::GET_VRING_BASE, pair(99, 0), "GET_VRING_BASE", "99"),
        (Ask::GET_INFLIGHT_FD, inflight, "GET_INFLIGHT_FD", "17"),
        (Ask::SET_VRING_ENABLE, pair(0, 7), "SET_VRING_ENABLE", "7"),
        (Ask::SET_VRING_NUM, vec![0; 9], "SET_VRING_NUM", "9 bytes"),
        (Ask::SET_MEM_TABLE, pair(77, 0), "SET_MEM_TABLE", "77"),
        (Ask::GET_CONFIG, vec![7; 12], "GET_CONFIG", "0x7070707"),
        (Ask::ADD_MEM_REG, vec![], "ADD_MEM_REG", ""),
    ] {
        let mut both = Both::new();
        let Event::CutOff(why) = both.ask(code, &body) else {
            panic!("{name} is not the end");
        };
        assert!(why.contains(name) && why.contains(value), "{why}");
        assert!(both.answers().is_empty(), "{why}");
    }
}

/// Any message is carried out, refused or ends the session. None panics or blocks.
#[test]
fn any_message_comes_to_an_end() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        // xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut both = Both::new();
    let mut ends = [0_u32; 3];
    for _ in 0..20_000 {
        let code = u32::try_from(random() % 44).unwrap();
        let length = [0, 8, 16, 24, 40, random() % 64][usize::try_from(random() % 6).unwrap()];
        let small = random() % 4 != 0;
        let body: Vec<u8> = (0..length)
            .map(|at| {
                if small && at % 4 != 0 {
                    0
                } else {
                    random().to_le_bytes()[0]
                }
            })
            .collect();
        let flags = 1 | u32::try_from(random() % 2 * 8).unwrap();
        let header = [code, flags, u32::try_from(length).unwrap()].map(u32::to_ne_bytes);
        both.front
            .write_all(&[&header.concat(), &body[..]].concat())
            .unwrap();
        match both.session.attend(&mut both.device, Micros(1)) {
            Event::Fine => ends[0] += 1,
            Event::Refused(_) => ends[1] += 1,
            Event::CutOff(_) => {
                ends[2] += 1;
                both = Both::new();
            }
            Event::Gone => panic!("the front-end did not go"),
        }
        both.answers();
    }
    assert!(ends.iter().all(|count| *count > 100), "{ends:?}");
}

#[test]
fn five_seconds_are_for_all_of_a_message() {
    let mut both = Both::new();
    let second = |count: u64| Micros(1 + count * 1_000_000);
    // One byte each second does not extend the time.
    for at in 0..5 {
        both.front.write_all(&[1]).unwrap();
        let event = both.session.attend(&mut both.device, second(at));
        assert!(matches!(event, Event::Fine), "{at}: {event:?}");
        assert_eq!(both.session.deadline(), Some(second(5)));
    }
    both.front.write_all(&[1]).unwrap();
    let event = both.session.attend(&mut both.device, second(5));
    assert!(matches!(event, Event::CutOff(_)), "{event:?}");
}
