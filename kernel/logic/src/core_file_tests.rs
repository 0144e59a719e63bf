//! Parses the beginning of a core file by the definition of the format.

use super::core_file::{
    Kin, MAX_SEGMENTS, MainThread, Mapped, Notes, Process, REGISTERS, Segment, Thread, data_offset,
    headers,
};
use std::vec;
use std::vec::Vec;

fn word(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(word)
}

const KIN: Kin = Kin {
    number: 7,
    parent: 6,
    group: 5,
    session: 4,
};

fn notes_of(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (mut at, mut notes) = (0, Vec::new());
    while at < bytes.len() {
        assert_eq!(word(bytes, at, 4), 5);
        assert_eq!(&bytes[at + 12..at + 20], b"CORE\0\0\0\0");
        let len = word(bytes, at + 4, 4) as usize;
        notes.push((
            word(bytes, at + 8, 4),
            bytes[at + 20..at + 20 + len].to_vec(),
        ));
        at += 20 + len.next_multiple_of(4);
    }
    notes
}

#[test]
fn a_thread_is_as_debuggers_know_it() {
    let mut registers = [0; REGISTERS];
    registers.iter_mut().zip(1..).for_each(|(r, i)| *r = i);
    let mut notes = Notes::default();
    notes
        .thread(&Thread {
            kin: KIN,
            signal: 11,
            pending: 2,
            blocked: 4,
            times: [1_500_000_000, 2_000, 0, 0],
            registers: &registers,
        })
        .unwrap();
    notes.floats(&[9; 512]).unwrap();
    let read = notes_of(notes.as_ref());
    assert_eq!(read.len(), 2);
    let (kind, status) = &read[0];
    assert_eq!((*kind, status.len()), (1, 336));
    assert_eq!((word(status, 0, 4), word(status, 12, 2)), (11, 11));
    assert_eq!((word(status, 16, 8), word(status, 24, 8)), (2, 4));
    assert_eq!((word(status, 32, 4), word(status, 44, 4)), (7, 4));
    assert_eq!((word(status, 48, 8), word(status, 56, 8)), (1, 500_000));
    assert_eq!(word(status, 72, 8), 2);
    // r15 comes first, rip is the 17th.
    assert_eq!(
        (word(status, 112, 8), word(status, 112 + 16 * 8, 8)),
        (1, 17)
    );
    assert_eq!(read[1], (2, vec![9; 512]));
}

#[test]
fn a_process_has_its_words_apart() {
    let mut notes = Notes::default();
    let name = b"prog\0\0\0\0\0\0\0\0\0\0\0\0";
    notes
        .process(&Process {
            kin: KIN,
            owner: [1, 2],
            main: MainThread::Waits,
            nice: -3,
            name,
            arguments: b"prog\0one\0",
        })
        .unwrap();
    let read = notes_of(notes.as_ref());
    let (kind, about) = &read[0];
    assert_eq!((*kind, about.len()), (3, 136));
    assert_eq!((about[0], about[1], about[2]), (2, b'D', 0));
    assert_eq!(about[3], 0xfd);
    assert_eq!(
        (word(about, 16, 4), word(about, 20, 4), word(about, 24, 4)),
        (1, 2, 7)
    );
    assert_eq!(&about[40..56], name);
    assert_eq!(&about[56..66], b"prog one \0");
}

#[test]
fn files_are_named_behind_their_ranges() {
    let mut notes = Notes::default();
    let files = [
        Mapped {
            start: 4096,
            end: 8192,
            offset: 4096,
            path: b"/a",
        },
        Mapped {
            start: 8192,
            end: 12288,
            offset: 0,
            path: b"/bc",
        },
    ];
    notes.files(files.into_iter()).unwrap();
    let read = notes_of(notes.as_ref());
    let (kind, bytes) = &read[0];
    assert_eq!(*kind, 0x4649_4c45);
    assert_eq!((word(bytes, 0, 8), word(bytes, 8, 8)), (2, 4096));
    assert_eq!(
        (word(bytes, 16, 8), word(bytes, 32, 8), word(bytes, 40, 8)),
        (4096, 1, 8192)
    );
    assert_eq!(&bytes[64..], b"/a\0/bc\0");
}

#[test]
fn areas_lie_behind_each_other() {
    let segment = |start: u64, pages: u64, file: u64| Segment {
        start: start * 4096,
        end: (start + pages) * 4096,
        file_bytes: file * 4096,
        read: true,
        write: file != 0,
        execute: false,
    };
    let segments = [segment(1, 3, 3), segment(10, 5, 0), segment(20, 2, 1)];
    let bytes = headers(&segments, 100).unwrap();
    assert_eq!(bytes.len(), 64 + 4 * 56);
    assert_eq!(&bytes[..5], b"\x7fELF\x02");
    assert_eq!((word(&bytes, 16, 2), word(&bytes, 18, 2)), (4, 62));
    assert_eq!(
        (
            word(&bytes, 32, 8),
            word(&bytes, 54, 2),
            word(&bytes, 56, 2)
        ),
        (64, 56, 4)
    );
    assert_eq!(
        (
            word(&bytes, 64, 4),
            word(&bytes, 72, 8),
            word(&bytes, 96, 8)
        ),
        (4, 288, 100)
    );
    let data = data_offset(3, 100);
    assert_eq!(data, 4096);
    let of = |i: usize| {
        let at = 64 + 56 * (i + 1);
        (
            word(&bytes, at + 4, 4),
            word(&bytes, at + 8, 8),
            word(&bytes, at + 32, 8),
            word(&bytes, at + 40, 8),
        )
    };
    assert_eq!(of(0), (6, data, 3 * 4096, 3 * 4096));
    assert_eq!(of(1), (4, data + 3 * 4096, 0, 5 * 4096));
    assert_eq!(of(2), (6, data + 3 * 4096, 4096, 2 * 4096));
}

#[test]
fn as_many_areas_as_are_counted() {
    let segment = Segment {
        start: 0,
        end: 4096,
        file_bytes: 0,
        read: true,
        write: false,
        execute: false,
    };
    let bytes = headers(&vec![segment; MAX_SEGMENTS], 0).unwrap();
    assert_eq!(word(&bytes, 56, 2), 0xfffe);
}
