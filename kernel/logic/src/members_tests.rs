//! A file drops its page while spaces that show it fault, fork and move. In the end no space shows
//! it. All interleavings: `cargo test -p ebb-kernel-logic-models --release model`.

use super::members::{Member, Place};
use super::model_locks::Mutex;
use std::vec::Vec;

type Members<M> = super::members::Members<Mutex<Vec<Place<M>>>, Mutex<()>>;

fn empty<M: Member>() -> Members<M> {
    Members::new(Mutex::new(Vec::new()), Mutex::new(()))
}

#[cfg(not(ebb_model))]
mod order {
    use super::{Member, Members, empty};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::vec::Vec;

    /// A space that consists of its number and a flag that says whether it is gone.
    #[derive(Clone)]
    struct Numbered(u32, Rc<Cell<bool>>);

    impl Numbered {
        fn new(number: u32) -> Self {
            Self(number, Rc::default())
        }
    }

    impl Member for Numbered {
        fn is_gone(&self) -> bool {
            self.1.get()
        }
        fn number(&self) -> u64 {
            self.0.into()
        }
    }

    fn walked(members: &Members<Numbered>) -> Vec<u32> {
        let mut numbers = Vec::new();
        members.walk(|member| numbers.extend((!member.is_gone()).then_some(member.0)));
        numbers
    }

    #[test]
    fn a_child_comes_after_its_parent_though_a_place_before_it_is_vacant() {
        let members = empty();
        let spaces: Vec<_> = (0..4).map(Numbered::new).collect();
        for space in &spaces[..3] {
            members.join(space.clone()).unwrap();
        }
        spaces[0].1.set(true);
        members.follow(spaces[3].clone()).unwrap();
        assert_eq!(walked(&members), [1, 2, 3]);
    }

    #[test]
    fn who_joins_again_has_one_place_and_the_order_is_that_of_numbers() {
        let members = empty();
        let spaces: Vec<_> = (0..3).map(Numbered::new).collect();
        for space in [1, 0, 2, 1, 0] {
            members.join(spaces[space].clone()).unwrap();
        }
        members.follow(spaces[2].clone()).unwrap();
        assert_eq!(walked(&members), [0, 1, 2]);
        assert!(members.any());
        for space in &spaces {
            space.1.set(true);
        }
        assert!(!members.any());
    }

    #[test]
    fn those_that_went_without_a_word_do_not_make_the_list_grow() {
        let members = empty();
        for number in 0..10_000 {
            let space = Numbered::new(number);
            members.join(space.clone()).unwrap();
            space.1.set(true);
        }
        let places = super::super::lock::Lock::lock(members.list()).capacity();
        assert!(places <= 16, "{places} places for no member");
    }

    #[test]
    fn who_joins_during_a_walk_moves_no_member_out_of_its_way() {
        let members = empty();
        let spaces: Vec<_> = (0..8).map(Numbered::new).collect();
        for space in [1, 3, 5] {
            members.join(spaces[space].clone()).unwrap();
        }
        let mut met = Vec::new();
        members.walk(|member| {
            if member.0 == 3 {
                for joins in [0, 2, 4, 7] {
                    members.join(spaces[joins].clone()).unwrap();
                }
                members.leave(1);
            }
            met.push(member.0);
        });
        met.retain(|number| [1, 3, 5].contains(number));
        assert_eq!(met, [1, 3, 5]);
        assert_eq!(walked(&members), [0, 2, 3, 4, 5, 7]);
    }

    #[test]
    fn who_leaves_is_not_kept_by_the_list() {
        let members = empty();
        let spaces: Vec<_> = (0..4).map(Numbered::new).collect();
        for space in &spaces {
            members.follow(space.clone()).unwrap();
        }
        // Members leave from the end, from the middle, with an unknown number, and from the end
        // after a vacant place. The places of the others stay.
        for (leaves, left) in [
            (3, &[0, 1, 2][..]),
            (1, &[0, 2]),
            (9, &[0, 2]),
            (2, &[0]),
            (0, &[]),
        ] {
            members.leave(leaves);
            assert_eq!(walked(&members), left);
        }
        for space in &spaces {
            assert_eq!(Rc::strong_count(&space.1), 1, "space {}", space.0);
        }
        assert!(!members.any());
    }

    #[test]
    fn who_leaves_during_a_walk_is_not_met_and_the_others_are() {
        let members = empty();
        let spaces: Vec<_> = (0..5).map(Numbered::new).collect();
        for space in &spaces {
            members.follow(space.clone()).unwrap();
        }
        let mut met = Vec::new();
        members.walk(|member| {
            if member.0 == 1 {
                members.leave(4);
                members.leave(2);
                members.leave(0);
            }
            met.push(member.0);
        });
        assert_eq!(met, [0, 1, 3]);
        assert_eq!(walked(&members), [1, 3]);
    }
}

#[cfg(ebb_model)]
mod model {
    use super::{Member, Members, empty};
    use loom::sync::{Arc, Mutex, MutexGuard};
    use loom::thread;
    use std::vec;
    use std::vec::Vec;

    /// Entries of a space.
    const PLACES: usize = 2;
    /// The page that the file drops.
    const OLD: u8 = 1;
    /// The page that the file has afterwards.
    const NEW: u8 = 2;

    /// The state that a space's lock guards, as far as the file is concerned.
    struct State {
        /// The page that each entry shows, 0 for none.
        entries: [u8; PLACES],
        /// An area maps the file.
        mapped: bool,
        /// The area is gone, and its entries are being removed.
        leaving: bool,
    }

    #[derive(Clone)]
    struct Space(Arc<Mutex<State>>, u64);

    impl Space {
        fn new(entries: [u8; PLACES]) -> Self {
            Self::numbered(0, entries)
        }

        fn numbered(number: u64, entries: [u8; PLACES]) -> Self {
            let state = State {
                entries,
                mapped: true,
                leaving: false,
            };
            Self(Arc::new(Mutex::new(state)), number)
        }

        fn lock(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap()
        }
    }

    impl Member for Space {
        fn is_gone(&self) -> bool {
            false
        }
        fn number(&self) -> u64 {
            self.1
        }
    }

    struct File {
        page: Mutex<u8>,
        members: Members<Space>,
    }

    impl File {
        fn new(spaces: &[Space]) -> Arc<Self> {
            let members = empty();
            for space in spaces {
                members.join(space.clone()).unwrap();
            }
            Arc::new(Self {
                page: Mutex::new(OLD),
                members,
            })
        }

        /// Drops the page and removes it from all page tables. First it visits the entries of
        /// areas, one for each hold of the space's lock, as a batch may end anywhere. Then it
        /// visits the entries that are being unmapped.
        fn drop_page(&self) {
            *self.page.lock().unwrap() = NEW;
            self.members.walk(|space| {
                for place in 0..PLACES {
                    let mut state = space.lock();
                    if state.mapped {
                        state.entries[place] = 0;
                    }
                }
                let mut state = space.lock();
                if state.leaving {
                    state.entries = [0; PLACES];
                }
            });
        }
    }

    /// Drops the page while `other` runs on another thread. The file begins with the first of
    /// `spaces` as its member. Checks that no space shows the old page after the walk, nor after
    /// `other` has ended.
    fn check(spaces: Vec<Space>, other: fn(&File, &[Space])) {
        let file = File::new(&spaces[..1]);
        let (its_file, its_spaces) = (file.clone(), spaces.clone());
        let thread = thread::spawn(move || other(&its_file, &its_spaces));
        file.drop_page();
        let show_nothing_old = || {
            for space in &spaces {
                let entries = space.lock().entries;
                assert!(!entries.contains(&OLD), "{entries:?}");
            }
        };
        show_nothing_old();
        thread.join().unwrap();
        show_nothing_old();
    }

    #[test]
    fn a_fault_shows_no_page_that_was_dropped() {
        loom::model(|| {
            check(vec![Space::new([0; 2])], |file, spaces| {
                loop {
                    let sequence = file.members.sequence();
                    let page = *file.page.lock().unwrap();
                    let mut state = spaces[0].lock();
                    if sequence == file.members.sequence() {
                        state.entries[1] = page;
                        return;
                    }
                }
            });
        });
    }

    #[test]
    fn a_forked_child_shows_no_page_that_was_dropped() {
        loom::model(|| {
            check(
                vec![Space::new([OLD; 2]), Space::numbered(1, [0; 2])],
                |file, spaces| {
                    file.members.follow(spaces[1].clone()).unwrap();
                    for place in 0..PLACES {
                        let parent = spaces[0].lock();
                        spaces[1].lock().entries[place] = parent.entries[place];
                    }
                },
            );
        });
    }

    #[test]
    fn a_moved_entry_shows_no_page_that_was_dropped() {
        loom::model(|| {
            check(vec![Space::new([0, OLD])], |file, spaces| {
                let _walks = file.members.keep_out();
                let mut state = spaces[0].lock();
                state.entries[0] = core::mem::take(&mut state.entries[1]);
            });
        });
    }

    #[test]
    fn an_area_on_its_way_out_shows_no_page_that_was_dropped() {
        loom::model(|| {
            check(vec![Space::new([0, OLD])], |_, spaces| {
                {
                    let mut state = spaces[0].lock();
                    (state.mapped, state.leaving) = (false, true);
                }
                for place in 0..PLACES {
                    spaces[0].lock().entries[place] = 0;
                }
                spaces[0].lock().leaving = false;
            });
        });
    }
}
