//! Reads the vDSO's image like a loader.

use crate::vdso::{BYTES, Function, image};
use std::vec::Vec;

fn half(image: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([image[at], image[at + 1]]))
}

fn word(image: &[u8], at: usize) -> usize {
    let bytes = image[at..at + 4].try_into().expect("four of them");
    u32::from_le_bytes(bytes) as usize
}

fn long(image: &[u8], at: usize) -> usize {
    let bytes = image[at..at + 8].try_into().expect("eight of them");
    usize::try_from(u64::from_le_bytes(bytes)).expect("it is an offset")
}

fn name(image: &[u8], at: usize) -> &str {
    let end = image[at..].iter().position(|&c| c == 0).expect("an end");
    std::str::from_utf8(&image[at..at + end]).expect("a name")
}

/// Returns the offset and the size of the segment of `image` whose program header has the type
/// `kind`.
fn segment(image: &[u8], kind: usize) -> (usize, usize) {
    (0..half(image, 56))
        .map(|number| 64 + number * 56)
        .find(|&at| word(image, at) == kind)
        .map(|at| (long(image, at + 8), long(image, at + 32)))
        .expect("there is one")
}

/// Returns the hash of `name` by the function of System V's loaders.
fn hash(name: &str) -> usize {
    let mut hash = 0_u32;
    for c in name.bytes() {
        hash = (hash << 4).wrapping_add(c.into());
        hash ^= (hash & 0xf000_0000) >> 24;
        hash &= 0x0fff_ffff;
    }
    hash as usize
}

struct Object<'a> {
    image: &'a [u8],
}

impl Object<'_> {
    fn dynamic(&self, tag: usize) -> usize {
        let (start, bytes) = segment(self.image, 2);
        (start..start + bytes)
            .step_by(16)
            .find(|&at| long(self.image, at) == tag)
            .map(|at| long(self.image, at + 8))
            .expect("the tag is there")
    }

    /// Looks up the function called `wanted` with this `version`. Returns its bytes, or `None` if
    /// there is no such function.
    fn find(&self, wanted: &str, version: &str) -> Option<&[u8]> {
        let image = self.image;
        let (table, symbols, strings) = (self.dynamic(4), self.dynamic(6), self.dynamic(5));
        let buckets = word(image, table);
        let mut number = word(image, table + 8 + 4 * (hash(wanted) % buckets));
        while number != 0 {
            assert!(
                number < word(image, table + 4),
                "the chain leaves the table"
            );
            let symbol = symbols + number * 24;
            let named = name(image, strings + word(image, symbol)) == wanted;
            let index = half(image, self.dynamic(0x6fff_fff0) + number * 2);
            if named && self.version(index) == version {
                assert_ne!(half(image, symbol + 6), 0, "it would be undefined");
                let start = long(image, symbol + 8);
                return Some(&image[start..start + long(image, symbol + 16)]);
            }
            number = word(image, table + 8 + 4 * buckets + 4 * number);
        }
        None
    }

    fn version(&self, index: usize) -> &str {
        let mut at = self.dynamic(0x6fff_fffc);
        loop {
            if half(self.image, at + 4) == index {
                let first = at + word(self.image, at + 12);
                return name(self.image, self.dynamic(5) + word(self.image, first));
            }
            let next = word(self.image, at + 16);
            assert_ne!(next, 0, "no version {index}");
            at += next;
        }
    }
}

const FUNCTIONS: [Function<'_>; 2] = [
    Function {
        name: "clock_gettime",
        start: 8,
        end: 12,
    },
    Function {
        name: "time",
        start: 12,
        end: 13,
    },
];
const CODE: [u8; 13] = *b"8 bytes.abcd!";

#[test]
fn functions_are_found_by_name_and_version() {
    let (image, _) = image(&CODE, &FUNCTIONS).expect("it fits");
    let object = Object { image: &image };
    for (name, bytes) in [("clock_gettime", &b"abcd"[..]), ("time", b"!")] {
        assert_eq!(object.find(name, "LINUX_2.6"), Some(bytes));
        let long = std::format!("__vdso_{name}");
        assert_eq!(object.find(&long, "LINUX_2.6"), Some(bytes));
    }
    assert_eq!(object.find("getcpu", "LINUX_2.6"), None);
    assert_eq!(object.find("time", "linux-vdso.so.1"), None);
    assert_eq!(object.version(1), "linux-vdso.so.1");
    let title = object.dynamic(5) + object.dynamic(14);
    assert_eq!(name(&image, title), "linux-vdso.so.1");
}

#[test]
fn one_segment_has_all() {
    let (image, code) = image(&CODE, &FUNCTIONS).expect("it fits");
    assert_eq!(image.len(), BYTES);
    assert_eq!(segment(&image, 1), (0, code + CODE.len()));
    assert_eq!(code % 16, 0);
    assert_eq!(image[code..code + CODE.len()], CODE);
}

#[test]
fn an_unwinder_finds_the_way_out() {
    let (image, code) = image(&CODE, &FUNCTIONS).expect("it fits");
    let signed = |at: usize| word(&image, at) as u32 as i32 as isize;
    let (header, _) = segment(&image, 0x6474_e550);
    assert_eq!(image[header..header + 4], [1, 0x1b, 3, 0x3b]);
    assert_eq!(word(&image, header + 8), 1);
    assert_eq!(header.wrapping_add_signed(signed(header + 12)), code);
    let description = header.wrapping_add_signed(signed(header + 16));
    let common = description + 4 - word(&image, description + 4);
    assert_eq!(common, (header + 4).wrapping_add_signed(signed(header + 4)));
    let begin = description + 8;
    assert_eq!(begin.wrapping_add_signed(signed(begin)), code);
    assert_eq!(word(&image, description + 12), CODE.len());
    assert_eq!(name(&image, common + 9), "zR");
    let next = description + 4 + word(&image, description);
    assert_eq!(word(&image, next), 0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let code: Vec<u8> = std::vec![0x90; BYTES];
    assert!(image(&code, &FUNCTIONS).is_none());
}
