//! Compares the set of areas with an array that holds the state of each page.

use crate::vma::{Backing, CHUNK, Vma, VmaSet};
use core::ops::Range;
use proptest::prelude::*;
use std::vec::Vec;

const PAGE: u64 = 4096;
/// Number of pages of the model: few enough that changes meet, enough for several chunks.
const PAGES: u64 = 400;

/// The bytes of an object from an offset on. Object 0 is anonymous and has no offsets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Object {
    number: u8,
    offset: u64,
}

impl Object {
    fn at(number: u8, offset: u64) -> Self {
        Self {
            number,
            offset: if number == 0 { 0 } else { offset },
        }
    }
}

impl Backing for Object {
    fn advanced(&self, bytes: u64) -> Self {
        Self::at(self.number, self.offset + bytes)
    }
    fn continues(&self, bytes: u64, next: &Self) -> bool {
        self.advanced(bytes) == *next
    }
}

#[derive(Clone, Debug)]
enum Change {
    Map {
        start: u64,
        pages: u64,
        flags: u8,
        number: u8,
    },
    Unmap {
        start: u64,
        pages: u64,
    },
    Protect {
        start: u64,
        pages: u64,
        flags: u8,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let short = prop_oneof![4 => 1..4u64, 1 => 1..60u64];
    let place = (0..PAGES, short).prop_map(|(start, pages)| (start, pages.min(PAGES - start)));
    prop_oneof![
        3 => (place.clone(), 0..3u8, 0..3u8)
            .prop_map(|((start, pages), flags, number)| Change::Map { start, pages, flags, number }),
        1 => place.clone().prop_map(|(start, pages)| Change::Unmap { start, pages }),
        1 => (place, 0..3u8)
            .prop_map(|((start, pages), flags)| Change::Protect { start, pages, flags }),
    ]
}

type Model = Vec<Option<(u8, Object)>>;

fn clear(set: &mut VmaSet<u8, Object>, start: u64, end: u64) {
    set.prepare(start, end).unwrap();
    set.split(start);
    set.split(end);
    while set.pop(start..end).is_some() {}
}

/// Inserts an area with `range`, `flags` and `backing` into `set`. No area is there yet.
fn add(set: &mut VmaSet<u8, Object>, range: Range<u64>, flags: u8, backing: Object) {
    set.prepare(range.start, range.end).unwrap();
    set.insert(Vma {
        start: range.start,
        end: range.end,
        flags,
        backing,
    });
}

fn apply(set: &mut VmaSet<u8, Object>, model: &mut Model, change: &Change) {
    let (first, pages) = match *change {
        Change::Map { start, pages, .. }
        | Change::Unmap { start, pages }
        | Change::Protect { start, pages, .. } => (start, pages),
    };
    let (start, end) = (first * PAGE, (first + pages) * PAGE);
    let of_model = first as usize..(first + pages) as usize;
    match *change {
        Change::Map { flags, number, .. } => {
            clear(set, start, end);
            // Uses the same object at the same place, so that neighbours often continue each other.
            add(set, start..end, flags, Object::at(number, start));
            for page in of_model {
                model[page] = Some((flags, Object::at(number, page as u64 * PAGE)));
            }
        }
        Change::Unmap { .. } => {
            clear(set, start, end);
            model[of_model].fill(None);
        }
        Change::Protect { flags, .. } => {
            set.prepare(start, end).unwrap();
            set.split(start);
            set.split(end);
            set.set_flags(start..end, |_| flags);
            set.merge(start..end);
            for page in model[of_model].iter_mut().flatten() {
                page.0 = flags;
            }
        }
    }
}

fn compare(set: &VmaSet<u8, Object>, model: &Model) {
    set.validate();
    let mut areas = 0;
    for page in 0..PAGES {
        let at = page * PAGE;
        let found = set
            .find(at + 17)
            .map(|a| (a.flags, a.backing.advanced(at - a.start)));
        assert_eq!(found, model[page as usize], "page {page}");
        let next = (page..PAGES).find(|&p| model[p as usize].is_some());
        assert_eq!(
            set.next_from(at).map(|a| a.start.max(at) / PAGE),
            next,
            "after page {page}"
        );
        let last = (0..page).rev().find(|&p| model[p as usize].is_some());
        let before = set.last_before(at).map(|a| a.end.min(at) / PAGE - 1);
        assert_eq!(before, last, "before page {page}");
        let begins = match (page.checked_sub(1).and_then(|p| model[p as usize]), found) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(this)) => before.0 != this.0 || !before.1.continues(PAGE, &this.1),
        };
        areas += usize::from(begins);
    }
    assert_eq!(
        set.len(),
        areas,
        "neighbours are merged, and nothing else is"
    );
}

fn free_runs(model: &Model) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (page, _) in model.iter().enumerate().filter(|(_, p)| p.is_none()) {
        match runs.last_mut() {
            Some(run) if run.1 == page as u64 => run.1 += 1,
            _ => runs.push((page as u64, page as u64 + 1)),
        }
    }
    runs
}

fn compare_gaps(set: &VmaSet<u8, Object>, model: &Model, pages: u64) {
    let runs = free_runs(model);
    let fits = |run: &&(u64, u64)| run.1 - run.0 >= pages;
    let highest = runs
        .iter()
        .rev()
        .find(fits)
        .map(|run| (run.1 - pages) * PAGE);
    assert_eq!(set.highest_gap(pages * PAGE, 0..PAGES * PAGE), highest);
    let lowest = runs.iter().find(fits).map(|run| run.0 * PAGE);
    assert_eq!(set.lowest_gap(pages * PAGE, 0..PAGES * PAGE), lowest);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_an_array_of_pages(changes in prop::collection::vec(change(), 1..300), gap in 1..40u64) {
        let mut set = VmaSet::new();
        let mut model = std::vec![None; PAGES as usize];
        for (number, change) in changes.iter().enumerate() {
            apply(&mut set, &mut model, change);
            if number % 16 == 0 {
                compare(&set, &model);
            }
            // The search remembers where the last search, of this size or another, ended.
            compare_gaps(&set, &model, if number % 5 == 0 { gap / 3 + 1 } else { gap });
        }
        compare(&set, &model);
        compare_gaps(&set, &model, gap);
        let copy = set.try_clone_of(|_| true).unwrap();
        compare(&copy, &model);
        // A copy omits areas of one kind, as fork omits areas that children do not inherit.
        let part = set.try_clone_of(|area| area.flags != 1).unwrap();
        let rest: Model = model.iter().map(|p| p.filter(|(flags, _)| *flags != 1)).collect();
        compare(&part, &rest);
        for page in 0..PAGES - 5 {
            let covered = (page..page + 5).all(|p| model[p as usize].is_some());
            prop_assert_eq!(set.covers(page * PAGE..(page + 5) * PAGE), covered);
        }
    }
}

#[test]
fn fills_chunks_and_empties_them() {
    let mut set = VmaSet::new();
    let areas = CHUNK as u64 * 20;
    for number in 0..areas {
        // Every other page, from both ends alternately, so that nothing merges.
        let place = if number % 2 == 0 {
            number
        } else {
            areas * 2 - number
        };
        let start = place * 2 * PAGE;
        add(&mut set, start..start + PAGE, 0, Object::at(0, 0));
        set.validate();
    }
    assert_eq!(set.len() as u64, areas);
    while let Some(area) = set.pop(0..u64::MAX) {
        assert!(set.find(area.start).is_none());
        set.validate();
    }
    assert_eq!(set.len(), 0);
}

#[test]
#[should_panic(expected = "areas overlap")]
fn two_areas_never_show_one_address() {
    let mut set = VmaSet::new();
    for start in [4, 2] {
        add(
            &mut set,
            start * PAGE..(start + 3) * PAGE,
            0,
            Object::at(1, 0),
        );
    }
}

#[test]
fn an_area_grows_down_to_the_one_below() {
    let mut set = VmaSet::new();
    for start in [2, 10] {
        add(
            &mut set,
            start * PAGE..(start + 1) * PAGE,
            0,
            Object::at(0, 0),
        );
    }
    set.grow_down(10 * PAGE, 3 * PAGE);
    set.validate();
    assert_eq!(set.find(3 * PAGE).map(|area| area.end), Some(11 * PAGE));
}

#[test]
fn what_is_prepared_for_any_place_goes_anywhere() {
    // Like a move: the prepared memory is still there after another area is removed.
    for gone in 0..CHUNK as u64 * 4 {
        let mut set = VmaSet::new();
        for number in 0..CHUNK as u64 * 4 {
            let start = (number * 2 + 1) * PAGE;
            add(&mut set, start..start + PAGE, 0, Object::at(0, 0));
        }
        set.prepare_anywhere().unwrap();
        let start = (gone * 2 + 1) * PAGE;
        set.pop(start..start + PAGE).unwrap();
        set.insert(Vma {
            start: 0,
            end: PAGE,
            flags: 1,
            backing: Object::at(0, 0),
        });
        set.validate();
        assert_eq!(set.len(), CHUNK * 4);
    }
}
