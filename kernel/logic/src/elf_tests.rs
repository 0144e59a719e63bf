//! Tests the ELF parser: accepted files are consistent, and no file makes it panic.

use super::elf::{self, ElfError, HEADER_BYTES, Header, PROGRAM_HEADER_BYTES};
use proptest::prelude::*;
use std::vec::Vec;

const USER_END: u64 = 0x7fff_ffff_f000;

fn file_header(kind: u16, entry: u64, offset: u64, count: u16) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    bytes[16..18].copy_from_slice(&kind.to_le_bytes());
    bytes[18..20].copy_from_slice(&62_u16.to_le_bytes());
    bytes[24..32].copy_from_slice(&entry.to_le_bytes());
    bytes[32..40].copy_from_slice(&offset.to_le_bytes());
    bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&count.to_le_bytes());
    bytes
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
    alignment: u64,
}

fn table(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let mut one = [0; PROGRAM_HEADER_BYTES];
        one[..4].copy_from_slice(&entry.kind.to_le_bytes());
        one[4..8].copy_from_slice(&entry.flags.to_le_bytes());
        one[8..16].copy_from_slice(&entry.offset.to_le_bytes());
        one[16..24].copy_from_slice(&entry.address.to_le_bytes());
        one[32..40].copy_from_slice(&entry.file_bytes.to_le_bytes());
        one[40..48].copy_from_slice(&entry.memory_bytes.to_le_bytes());
        one[48..56].copy_from_slice(&entry.alignment.to_le_bytes());
        bytes.extend(one);
    }
    bytes
}

const TEXT: Entry = Entry {
    kind: 1,
    flags: 5,
    offset: 0,
    address: 0x40_0000,
    file_bytes: 0x1234,
    memory_bytes: 0x1234,
    alignment: 0x1000,
};
const DATA: Entry = Entry {
    kind: 1,
    flags: 6,
    offset: 0x1800,
    address: 0x40_2800,
    file_bytes: 0x100,
    memory_bytes: 0x5000,
    alignment: 0x1000,
};

fn good() -> (Header, Vec<u8>) {
    let header = elf::header(&file_header(2, 0x40_0100, 64, 2)).unwrap();
    (header, table(&[TEXT, DATA]))
}

#[test]
fn a_plain_program_is_laid_out() {
    let (header, table) = good();
    assert!(header.fixed);
    let layout = elf::layout(&header, &table, USER_END).unwrap();
    assert_eq!((layout.start, layout.end), (0x40_0000, 0x40_7800));
    assert_eq!(layout.code, [0x40_0000, 0x40_1234]);
    assert_eq!(layout.data, [0x40_2800, 0x40_2900]);
    assert_eq!(
        layout.headers,
        Some(0x40_0040),
        "found by the segment that holds them"
    );
    assert!(!layout.executable_stack);
    let segments: Vec<_> = elf::segments(&table).collect();
    assert_eq!(segments.len(), 2);
    assert!(segments[0].execute && !segments[0].write);
    assert!(segments[1].write && !segments[1].execute);
}

#[test]
fn other_files_are_told_apart() {
    let good = file_header(2, 0x40_0100, 64, 2);
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        elf::header(&bytes)
    };
    assert_eq!(with(0, b'#'), Err(ElfError::NotElf));
    assert_eq!(with(4, 1), Err(ElfError::WrongMachine), "32 bits");
    assert_eq!(with(18, 183), Err(ElfError::WrongMachine), "arm64");
    assert_eq!(with(16, 1), Err(ElfError::NotExecutable), "an object file");
    assert_eq!(with(54, 32), Err(ElfError::Malformed("e_phentsize")));
    assert_eq!(with(56, 0), Err(ElfError::Malformed("e_phnum")));
}

#[test]
fn a_dynamic_program_names_its_interpreter() {
    let header = elf::header(&file_header(3, 0x40_0100, 64, 2)).unwrap();
    let interpreter = Entry {
        kind: 3,
        offset: 0x238,
        file_bytes: 28,
        ..TEXT
    };
    let layout = |first: Entry| elf::layout(&header, &table(&[first, TEXT]), USER_END);
    let found = layout(interpreter).unwrap().interpreter;
    assert_eq!(
        found,
        Some(elf::Interpreter {
            offset: 0x238,
            bytes: 28
        })
    );
    for file_bytes in [0, 1, 4097, u64::MAX] {
        let refused = layout(Entry {
            file_bytes,
            ..interpreter
        });
        assert_eq!(refused, Err(ElfError::Malformed("PT_INTERP")));
    }
}

#[test]
fn contradictions_are_named() {
    let (header, _) = good();
    let layout = |text, data| elf::layout(&header, &table(&[text, data]), USER_END);
    let refused = |text, data, field| {
        assert_eq!(layout(text, data), Err(ElfError::Malformed(field)));
    };
    refused(
        TEXT,
        Entry {
            file_bytes: 0x6000,
            ..DATA
        },
        "p_filesz",
    );
    refused(
        TEXT,
        Entry {
            offset: u64::MAX - 0x7ff,
            ..DATA
        },
        "p_offset",
    );
    refused(
        TEXT,
        Entry {
            address: 0x40_2900,
            ..DATA
        },
        "p_align",
    );
    refused(
        TEXT,
        Entry {
            memory_bytes: u64::MAX,
            ..DATA
        },
        "p_memsz",
    );
    refused(
        TEXT,
        Entry {
            address: USER_END - 0x800,
            ..DATA
        },
        "p_memsz",
    );
    refused(
        Entry { kind: 0, ..TEXT },
        Entry { kind: 0, ..DATA },
        "no PT_LOAD",
    );
}

#[test]
fn odd_segments_are_accepted() {
    let (header, _) = good();
    let layout = |data| elf::layout(&header, &table(&[TEXT, data]), USER_END).unwrap();
    let bounds = |data| {
        let layout = layout(data);
        (layout.start, layout.end)
    };
    let beyond = Entry {
        offset: 0x10_0800,
        ..DATA
    };
    assert_eq!(bounds(beyond), (0x40_0000, 0x40_7800), "beyond the file");
    let above = Entry {
        address: 0x40_0800,
        ..DATA
    };
    assert_eq!(bounds(above), (0x40_0000, 0x40_5800), "on another");
    let before = Entry {
        address: 0x30_0800,
        ..DATA
    };
    assert_eq!(bounds(before), (0x30_0000, 0x40_1234), "not in order");
    let zeros = Entry {
        offset: 0x123,
        file_bytes: 0,
        ..DATA
    };
    assert_eq!(bounds(zeros), (0x40_0000, 0x40_7800), "zeros alone");
    let copy = Entry {
        offset: 0,
        address: 0x50_0000,
        ..DATA
    };
    let headers = layout(copy).headers;
    assert_eq!(headers, Some(0x50_0040), "the last that has the headers");
    let empty = Entry {
        file_bytes: 0,
        memory_bytes: 0,
        ..before
    };
    assert_eq!(bounds(empty), (0x40_0000, 0x40_1234), "an empty one");
}

#[test]
fn the_largest_power_of_two_aligns() {
    let (header, _) = good();
    for (alignment, want) in [
        (0, 0x1000),
        (3, 0x1000),
        (0x20_0000, 0x20_0000),
        (0x30_0000, 0x1000),
        (1 << 63, 1 << 30),
    ] {
        let data = Entry { alignment, ..DATA };
        let layout = elf::layout(&header, &table(&[data, TEXT]), USER_END);
        assert_eq!(layout.unwrap().alignment, want);
    }
}

#[test]
fn scripts_name_their_interpreters() {
    let script = |text: &'static [u8]| elf::script(text);
    assert_eq!(script(b"#!/bin/sh\necho"), Some((&b"/bin/sh"[..], None)));
    assert_eq!(
        script(b"#! /bin/sh -e x \necho"),
        Some((&b"/bin/sh"[..], Some(&b"-e x"[..])))
    );
    assert_eq!(script(b"#!/bin/sh"), Some((&b"/bin/sh"[..], None)));
    assert_eq!(script(b"#!\n/bin/sh"), None);
    assert_eq!(script(b"#!   \n"), None);
    assert_eq!(script(b"echo"), None);
    let mut long = b"#!/".to_vec();
    long.resize(elf::SCRIPT_BYTES, b'x');
    assert_eq!(elf::script(&long), None, "the path may go on");
    assert_eq!(script(b"#!/bin/sh\r\n"), Some((&b"/bin/sh\r"[..], None)));
    assert_eq!(script(b"#!/bin/sh\0x\n"), Some((&b"/bin/sh"[..], None)));
    assert_eq!(script(b"#!/a b\0x\n"), Some((&b"/a"[..], Some(&b"b"[..]))));
    assert_eq!(script(b"#!/a b \t"), Some((&b"/a"[..], Some(&b"b \t"[..]))));
    assert_eq!(script(b"#!/a "), Some((&b"/a"[..], Some(&b""[..]))));
    assert_eq!(script(b"#!"), Some((&b""[..], None)));
    long[100] = b' ';
    let (path, argument) = elf::script(&long).unwrap();
    assert_eq!(
        (path, argument.map(<[u8]>::len)),
        (&long[2..100], Some(154))
    );
}

fn entry() -> impl Strategy<Value = Entry> {
    let number = || {
        prop_oneof![
            0..0x10_000_u64,
            any::<u64>(),
            Just(USER_END),
            Just(u64::MAX)
        ]
    };
    let kind = prop_oneof![4 => Just(1_u32), 1 => Just(3), 1 => Just(6), 1 => any::<u32>()];
    (kind, any::<u32>(), number(), number(), number(), number()).prop_map(
        |(kind, flags, offset, address, file_bytes, memory_bytes)| Entry {
            kind,
            flags,
            offset,
            address,
            file_bytes,
            memory_bytes,
            alignment: offset,
        },
    )
}

proptest! {
    #[test]
    fn any_header_is_answered(bytes in prop::array::uniform32(any::<u8>()), half: bool) {
        let mut header = if half { file_header(2, 0, 0, 1) } else { [0; HEADER_BYTES] };
        header[32..].copy_from_slice(&bytes);
        let _ = elf::header(&header);
    }

    #[test]
    fn what_is_accepted_holds_together(
        entries in prop::collection::vec(entry(), 0..6),
        start: u64,
        at: u64,
    ) {
        let header =
            Header { fixed: true, entry: start, table_offset: at, count: entries.len() };
        let table = table(&entries);
        if let Ok(layout) = elf::layout(&header, &table, USER_END) {
            prop_assert!(layout.start % 4096 == 0);
            prop_assert!(layout.start <= start && start < layout.end);
            prop_assert!(layout.end < USER_END);
            prop_assert!(layout.alignment.is_power_of_two());
            for segment in elf::segments(&table) {
                prop_assert!(segment.file_bytes <= segment.memory_bytes);
                if segment.file_bytes != 0 {
                    prop_assert!(segment.offset.checked_add(segment.file_bytes).is_some());
                    prop_assert_eq!(segment.address % 4096, segment.offset % 4096);
                }
                if segment.memory_bytes != 0 {
                    prop_assert!(layout.start <= segment.address);
                    prop_assert!(segment.end() <= layout.end);
                }
            }
        }
    }

    #[test]
    fn any_script_is_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut script = b"#!".to_vec();
        script.extend(bytes);
        script.truncate(elf::SCRIPT_BYTES);
        if let Some((path, _)) = elf::script(&script) {
            prop_assert!(!path.contains(&b'\n') && !path.contains(&0));
        }
    }
}
