//! Compares the discipline with a naive model of lines, and feeds it arbitrary input.

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Lines as the manual describes them, with the usual characters, no echo and enough room.
#[derive(Default)]
struct Model {
    whole: Vec<Vec<u8>>,
    typed: Vec<u8>,
    literal: bool,
}

impl Model {
    fn take(&mut self, c: u8) {
        if core::mem::take(&mut self.literal) {
            self.typed.push(c);
            return;
        }
        match c {
            b'\r' | b'\n' => {
                self.typed.push(b'\n');
                self.whole.push(core::mem::take(&mut self.typed));
            }
            0o4 => self.whole.push(core::mem::take(&mut self.typed)),
            0o177 => {
                self.typed.pop();
            }
            0o25 => self.typed.clear(),
            0o27 => {
                let is_word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
                while self.typed.last().is_some_and(|c| !is_word(c)) {
                    self.typed.pop();
                }
                while self.typed.last().is_some_and(is_word) {
                    self.typed.pop();
                }
            }
            0o26 => self.literal = true,
            0o3 | 0o34 | 0o32 => {
                self.whole.clear();
                self.typed.clear();
            }
            0o21 | 0o23 => {}
            _ => self.typed.push(c),
        }
    }
}

/// Generates a typed byte, in most cases one with a special meaning.
fn key() -> impl Strategy<Value = u8> {
    prop_oneof![
        3 => prop::sample::select(vec![b'a', b'b', b' ', b'_', b'\t', b'-']),
        3 => prop::sample::select(vec![
            3u8, 4, 0o10, b'\n', b'\r', 0o21, 0o22, 0o23, 0o25, 0o26, 0o27, 0o32, 0o34, 0o177, 0
        ]),
        1 => 0u8..0x80,
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Type(Vec<u8>),
    Write(Vec<u8>),
    Read(usize),
    Watch(usize),
    Set([u32; 4], Vec<u8>, bool),
    Flow(bool),
    FlushInput,
    FlushOutput,
    FlushFar,
    Packets(bool),
    HangUp,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop::collection::vec(prop_oneof![key(), any::<u8>()], 0..3000);
    prop_oneof![
        4 => bytes().prop_map(Step::Type),
        2 => bytes().prop_map(Step::Write),
        3 => (1usize..6000).prop_map(Step::Read),
        2 => (0usize..14_000).prop_map(Step::Watch),
        3 => (
            [0u32..0o100000, 0..0o20000, 0..u32::MAX, 0..0o400000],
            prop::collection::vec(any::<u8>(), 19),
            any::<bool>()
        )
            .prop_map(|(words, characters, flush)| Step::Set(words, characters, flush)),
        1 => any::<bool>().prop_map(Step::Flow),
        1 => Just(Step::FlushInput),
        1 => Just(Step::FlushOutput),
        1 => Just(Step::FlushFar),
        1 => any::<bool>().prop_map(Step::Packets),
        1 => Just(Step::HangUp),
    ]
}

fn apply(d: &mut Discipline, step: &Step) {
    let mut bytes = vec![0; 16 << 10];
    match step {
        Step::Type(text) => assert!(d.receive(text) <= text.len()),
        Step::Write(text) => {
            let could = d.is_writable();
            let took = d.write(text);
            assert!(took <= text.len());
            assert!(
                could || took < 8,
                "a terminal that takes nothing took {took}"
            );
        }
        Step::Read(most) => {
            let (ready, known) = (d.is_readable(false), d.readable_bytes());
            let got = d.read(&mut bytes[..*most]);
            assert_eq!(got.is_some(), ready);
            assert!(got.unwrap_or(0) <= known.min(*most));
        }
        Step::Watch(most) => {
            let count = d.peek_output(&mut bytes[..*most]);
            assert_eq!(count, d.output_bytes().min(*most));
            d.consume_output(count);
        }
        Step::Set(words, characters, flush) => {
            let mut raw = [0; NEW_BYTES];
            for (place, word) in raw.chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
            raw[17..36].copy_from_slice(characters);
            let when = if *flush { When::Flush } else { When::Now };
            d.set_termios(Termios::from_bytes(&raw), when);
        }
        Step::Flow(off) => d.set_flow(if *off { Flow::Off } else { Flow::On }),
        Step::FlushInput => d.flush_input(),
        Step::FlushOutput => d.flush_output(),
        Step::FlushFar => d.flush_far(),
        Step::Packets(on) => d.set_packet_mode(*on),
        Step::HangUp => d.hang_up(Termios::usual()),
    }
    d.take_keys();
    d.take_packet();
    d.check();
}

proptest! {
    #[test]
    fn lines_are_as_the_manual_says(text in prop::collection::vec(key(), 0..400)) {
        let mut termios = Termios::usual();
        termios.local.remove(Local::ECHO);
        let mut d = Discipline::new(termios).expect("memory");
        let mut model = Model::default();
        for &c in &text {
            prop_assert_eq!(d.receive(&[c]), 1);
            // Without echo, REPRINT is an ordinary character.
            model.take(c);
        }
        let mut line = [0; 4096];
        let mut got = Vec::new();
        while let Some(count) = d.read(&mut line) {
            got.push(line[..count].to_vec());
        }
        prop_assert_eq!(got, model.whole);
    }

    #[test]
    fn whatever_is_done_bounds_hold(steps in prop::collection::vec(step(), 1..60)) {
        let mut d = Discipline::new(Termios::usual()).expect("memory");
        for step in &steps {
            apply(&mut d, step);
        }
        // The terminal can still be used.
        d.hang_up(Termios::usual());
        d.consume_output(OUTPUT_ROOM);
        d.consume_output(OUTPUT_ROOM);
        prop_assert_eq!(d.receive(b"end\n"), 4);
        let mut line = [0; 8];
        prop_assert_eq!(d.read(&mut line), Some(4));
        prop_assert_eq!(d.write(b"x"), 1);
    }
}
