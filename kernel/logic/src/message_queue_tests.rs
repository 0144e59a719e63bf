//! Compares message queues of both kinds with lists that are searched.

use crate::errno::Errno;
use crate::message_queue::{Mark, Message, Party, Queue, Taking, Wanted};
use crate::priority_queue::{PriorityQueue, Sent};
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;

/// The result for a waiting caller.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Received(u32, Result<u32, Errno>),
    Sent(u32, Result<(), Errno>),
}

#[derive(Clone, Debug)]
struct Caller(u32, Rc<RefCell<Vec<Told>>>);

impl Party<u32> for Caller {
    fn received(self, result: Result<Message<u32>, Errno>) {
        let result = result.map(|message| message.body);
        self.1.borrow_mut().push(Told::Received(self.0, result));
    }
    fn sent(self, result: Result<(), Errno>) {
        self.1.borrow_mut().push(Told::Sent(self.0, result));
    }
}

const BY: Mark = Mark { pid: 1, seconds: 5 };

fn message(kind: i64, bytes: usize, body: u32) -> Message<u32> {
    Message { kind, bytes, body }
}

fn taking(kind: i64, except: bool, room: usize) -> Taking {
    Taking {
        wanted: Wanted::new(kind, except),
        room,
        truncates: false,
    }
}

fn bodies(queue: &mut Queue<u32, Caller>, kind: i64, except: bool) -> Vec<u32> {
    let mut all = Vec::new();
    while let Ok(Some(message)) = queue.receive(taking(kind, except, 100), BY) {
        all.push(message.body);
    }
    all
}

fn filled() -> Queue<u32, Caller> {
    let mut queue = Queue::new(100);
    for (body, kind) in [3, 1, 2, 3, 1].into_iter().enumerate() {
        assert!(queue.send(message(kind, 1, body as u32), BY).is_ok());
    }
    queue
}

#[test]
fn types_choose() {
    assert_eq!(bodies(&mut filled(), 0, false), [0, 1, 2, 3, 4]);
    assert_eq!(bodies(&mut filled(), 3, false), [0, 3]);
    assert_eq!(bodies(&mut filled(), 3, true), [1, 2, 4]);
    assert_eq!(bodies(&mut filled(), -2, false), [1, 4, 2]);
    assert_eq!(bodies(&mut filled(), i64::MIN, false), [1, 4, 2, 0, 3]);
    assert_eq!(
        bodies(&mut filled(), -2, true),
        [1, 4, 2],
        "the sign counts"
    );
    let queue = filled();
    assert_eq!(queue.peek(2).map(|message| message.body), Some(2));
    assert_eq!(queue.peek(5), None);
}

#[test]
fn what_is_too_large_stays() {
    let mut queue = Queue::<u32, Caller>::new(100);
    assert!(queue.send(message(1, 10, 7), BY).is_ok());
    assert_eq!(queue.receive(taking(0, false, 9), BY), Err(Errno::E2BIG));
    assert_eq!((queue.len(), queue.bytes()), (1, 10));
    let cut = Taking {
        truncates: true,
        ..taking(0, false, 9)
    };
    assert_eq!(queue.receive(cut, BY), Ok(Some(message(1, 10, 7))));
    assert!(queue.send(message(1, 101, 8), BY).is_err());
    assert!(queue.send(message(1, usize::MAX, 8), BY).is_err());
    // The number of empty messages is limited, too.
    for _ in 0..100 {
        assert!(queue.send(message(1, 0, 9), BY).is_ok());
    }
    assert!(queue.send(message(1, 0, 9), BY).is_err());
}

#[test]
fn who_waits_is_served() {
    let told = Rc::new(RefCell::new(Vec::new()));
    let caller = |n| Caller(n, told.clone());
    let mut queue = Queue::new(10);
    queue.wait_to_receive(taking(2, false, 1), 11, caller(1));
    queue.wait_to_receive(taking(2, false, 8), 12, caller(2));
    let third = queue.wait_to_receive(taking(0, false, 8), 13, caller(3));
    assert!(queue.send(message(2, 5, 50), BY).is_ok());
    let both = [
        Told::Received(1, Err(Errno::E2BIG)),
        Told::Received(2, Ok(50)),
    ];
    assert_eq!(told.take(), both);
    assert_eq!(
        (queue.received.pid, queue.sent.pid, queue.len()),
        (12, 1, 0)
    );
    assert!(queue.cancel_receive(third).is_some() && queue.cancel_receive(third).is_none());
    assert!(queue.send(message(1, 8, 51), BY).is_ok());
    // A smaller message may overtake a larger one that has waited longer.
    queue.wait_to_send(message(1, 9, 52), 21, caller(4));
    queue.wait_to_send(message(1, 2, 53), 22, caller(5));
    let gone = queue.wait_to_send(message(1, 1, 54), 23, caller(6));
    assert_eq!(
        queue.cancel_send(gone).map(|(message, _)| message.body),
        Some(54)
    );
    assert_eq!(bodies(&mut queue, 0, false), [51, 52, 53]);
    assert_eq!(told.take(), [Told::Sent(4, Ok(())), Told::Sent(5, Ok(()))]);
    queue.wait_to_receive(taking(0, false, 8), 13, caller(7));
    queue.set_most_bytes(0, 6);
    queue.wait_to_send(message(1, 1, 55), 22, caller(8));
    queue.close();
    let gone = Err(Errno::EIDRM);
    assert_eq!(
        told.take(),
        [Told::Received(7, Err(Errno::EIDRM)), Told::Sent(8, gone)]
    );
}

#[test]
fn lists_say_the_same() {
    const SEED: u64 = 0x3e55;
    let mut state = SEED;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let (mut queue, mut list) = (Queue::<u32, Caller>::new(200), Vec::new());
    for turn in 0..50_000 {
        if random(2) == 0 {
            let new = message(1 + random(6) as i64, random(20) as usize, turn);
            let sum: usize = list.iter().map(|m: &Message<u32>| m.bytes).sum();
            let fits = sum + new.bytes <= 200;
            assert_eq!(queue.send(new.clone(), BY).is_ok(), fits, "seed {SEED}");
            if fits {
                list.push(new);
            }
        } else {
            let kind = random(15) as i64 - 7;
            let except = random(2) == 0;
            let at = match kind {
                0 => (!list.is_empty()).then_some(0),
                ..0 => (0..list.len())
                    .filter(|&at| list[at].kind <= -kind)
                    .min_by_key(|&at| (list[at].kind, at)),
                _ => list.iter().position(|m| (m.kind == kind) != except),
            };
            let expected = at.map(|at| list.remove(at));
            let found = queue.receive(taking(kind, except, 20), BY);
            assert_eq!(found, Ok(expected), "seed {SEED}");
        }
        assert_eq!(queue.len(), list.len(), "seed {SEED}");
    }
}

#[test]
fn priorities_go_before_age() {
    let told = Rc::new(RefCell::new(Vec::new()));
    let caller = |n| Caller(n, told.clone());
    let mut queue = PriorityQueue::new(3);
    assert_eq!(queue.send(message(1, 4, 0)), Ok(Sent::First));
    assert_eq!(queue.send(message(5, 4, 1)), Ok(Sent::Kept));
    assert_eq!(queue.send(message(5, 4, 2)), Ok(Sent::Kept));
    assert!(queue.is_full() && queue.send(message(9, 4, 3)).is_err());
    queue.wait_to_send(0, message(0, 1, 3), caller(1));
    queue.wait_to_send(-5, message(7, 1, 4), caller(2));
    let gone = queue.wait_to_send(-9, message(9, 1, 5), caller(3));
    assert!(queue.cancel_send(gone).is_some() && queue.cancel_send(gone).is_none());
    let all: Vec<_> = core::iter::from_fn(|| queue.receive())
        .map(|m| m.body)
        .collect();
    assert_eq!(all, [1, 4, 2, 0, 3], "a better nice value is served first");
    assert_eq!(told.take(), [Told::Sent(2, Ok(())), Told::Sent(1, Ok(()))]);
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
    let first = queue.wait_to_receive(0, caller(4));
    queue.wait_to_receive(0, caller(5));
    assert!(queue.cancel_receive(first).is_some());
    assert_eq!(queue.send(message(1, 4, 9)), Ok(Sent::Received));
    assert_eq!(told.take(), [Told::Received(5, Ok(9))]);
}
