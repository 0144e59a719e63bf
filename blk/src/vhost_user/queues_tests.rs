//! Checks, step by step, the pages that are marked for requests under way when logging begins.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

use super::*;
use crate::request::{Op, Payload};
use crate::vhost_user::dirty::PAGE_BYTES;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

const PAGE: u64 = PAGE_BYTES;
const SIZE: u16 = 8;
/// Numbers of the pages that hold the rings, the header, the status, and the data.
const RINGS: u64 = 0;
const USED: u64 = 1;
const HEADER: u64 = 2;
const STATUS: u64 = 3;
const DATA: u64 = 4;

/// Makes a queue with one read of three sectors, which begins half a sector before the end of a
/// page.
fn queues(event_idx: bool) -> Queues {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 16 * PAGE as usize)]).unwrap();
    let descriptor = |index: u64, address: u64, bytes: u32, flags: u16| {
        let at = RINGS * PAGE + index * 16;
        let next = index as u16 + 1;
        memory.write_obj(address, GuestAddress(at)).unwrap();
        memory.write_obj(bytes, GuestAddress(at + 8)).unwrap();
        memory.write_obj(flags, GuestAddress(at + 12)).unwrap();
        memory.write_obj(next, GuestAddress(at + 14)).unwrap();
    };
    descriptor(0, HEADER * PAGE, 16, 1);
    descriptor(1, (DATA + 1) * PAGE - 256, 3 * 512, 3);
    descriptor(2, STATUS * PAGE + 7, 1, 2);
    memory.write_obj(1_u16, GuestAddress(0x402)).unwrap();
    let limits = Limits {
        bytes: 1 << 20,
        read_only: false,
    };
    let mut queues = Queues::new(1, SIZE, limits);
    let virtqueue = &mut queues.queues[0];
    virtqueue.queue.set_size(SIZE);
    virtqueue.queue.set_desc_table_address(Some(0), Some(0));
    virtqueue.queue.set_avail_ring_address(Some(0x400), Some(0));
    let used = (USED * PAGE) as u32;
    virtqueue.queue.set_used_ring_address(Some(used), Some(0));
    virtqueue.queue.set_event_idx(event_idx);
    virtqueue.enabled = true;
    virtqueue.start(&memory);
    assert!(virtqueue.running());
    queues.memory = Some(Arc::new(memory));
    queues
}

/// Makes a log of 64 pages, and a function that returns the pages marked since its last call.
fn log() -> (Arc<DirtyLog>, impl Fn() -> BTreeSet<u64>) {
    let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(8).unwrap();
    let log = DirtyLog::map(file.try_clone().unwrap(), 0, 8).unwrap();
    let take = move || {
        let mut bits = [0; 8];
        file.read_exact_at(&mut bits, 0).unwrap();
        file.write_all_at(&[0; 8], 0).unwrap();
        let bits = u64::from_le_bytes(bits);
        (0..64).filter(|page| bits & 1 << page != 0).collect()
    };
    (Arc::new(log), take)
}

#[test]
fn a_request_that_is_under_way_when_logging_begins_is_marked_when_it_ends() {
    let mut queues = queues(true);
    let Incoming { ticket, request } = queues.next_request().unwrap();
    let (op, payload) = request.unwrap();
    assert_eq!(op, Op::Read(0));
    let (log, take) = log();
    queues.dirty = Some(log);
    queues.queues[0].used_log = Some(40 * PAGE);
    payload.copy_in(0, &[1; 3 * 512]).unwrap();
    assert_eq!(take(), [].into(), "what is written is not marked before");
    queues.filled(&payload);
    assert_eq!(take(), [DATA, DATA + 1].into());
    queues.answer(ticket, Status::Ok, 3 * 512);
    assert_eq!(take(), [STATUS, 40].into(), "the ring by its log address");
    queues.dirty = None;
    queues.filled(&payload);
    queues.answer(ticket, Status::Ok, 3 * 512);
    assert_eq!(take(), [].into(), "logging has ended");
}

#[test]
fn the_driver_learns_of_answers_in_a_ring_that_was_disabled() {
    let call = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let mut queues = queues(false);
    queues.queues[0].call = Some(File::from(call.try_clone().unwrap()));
    let Incoming { ticket, .. } = queues.next_request().unwrap();
    // As a front-end does before it takes the ring back.
    queues.queues[0].enabled = false;
    queues.answer(ticket, Status::Ok, 0);
    queues.announce();
    let mut count = [0; 8];
    rustix::io::read(&call, &mut count).expect("a notification");
    assert_eq!(u64::from_ne_bytes(count), 1);
}

#[test]
fn a_used_ring_is_marked_only_if_that_is_asked_for() {
    let (event_idx, flags) = (queues(true), queues(false));
    for (mut queues, quiet) in [(event_idx, [].into()), (flags, [USED].into())] {
        let (log, take) = log();
        queues.dirty = Some(log);
        queues.mark_rings();
        queues.disable_notifications();
        queues.enable_notifications();
        let Incoming { ticket, .. } = queues.next_request().unwrap();
        queues.answer(ticket, Status::Ok, 0);
        assert_eq!(take(), [STATUS].into());
        queues.queues[0].used_log = Some(USED * PAGE);
        queues.mark_rings();
        assert_eq!(take(), [USED].into());
        queues.enable_notifications();
        assert_eq!(take(), [USED].into(), "what drivers are asked");
        queues.disable_notifications();
        assert_eq!(take(), quiet);
    }
}
