//! A file drops its page while spaces that show it fault, fork and move: in the end nobody shows it.
//! All interleavings: `RUSTFLAGS="--cfg loom" cargo test -p ebb-kernel --release --lib model`.

use super::members::{Member, Members};

#[cfg(not(loom))]
mod order {
    use super::{Member, Members};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::vec::Vec;

    /// A space that is nothing but a number, and may be gone.
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
        fn is(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    fn walked(members: &Members<Numbered>) -> Vec<u32> {
        let mut numbers = Vec::new();
        members.walk(|member| numbers.push(member.0));
        numbers
    }

    #[test]
    fn a_child_comes_after_its_parent_though_a_place_before_it_is_vacant() {
        let members = Members::new();
        let spaces: Vec<_> = (0..4).map(Numbered::new).collect();
        for space in &spaces[..3] {
            members.join(space.clone()).unwrap();
        }
        spaces[0].1.set(true);
        members.follow(spaces[3].clone()).unwrap();
        assert_eq!(walked(&members), [1, 2, 3]);
    }

    #[test]
    fn who_joins_takes_a_vacant_place_and_only_one() {
        let members = Members::new();
        let spaces: Vec<_> = (0..3).map(Numbered::new).collect();
        members.join(spaces[0].clone()).unwrap();
        members.join(spaces[1].clone()).unwrap();
        spaces[0].1.set(true);
        members.join(spaces[2].clone()).unwrap();
        members.join(spaces[1].clone()).unwrap();
        members.follow(spaces[2].clone()).unwrap();
        assert_eq!(walked(&members), [2, 1]);
        assert!(members.any());
        for space in &spaces {
            space.1.set(true);
        }
        assert!(!members.any());
    }
}

#[cfg(loom)]
mod model {
    use super::{Member, Members};
    use loom::sync::{Arc, Mutex};
    use loom::thread;
    use std::vec;
    use std::vec::Vec;

    /// Entries of a space.
    const PLACES: usize = 2;
    /// The page that the file drops.
    const OLD: u8 = 1;
    /// What it has afterwards.
    const NEW: u8 = 2;

    /// A space as far as the file is concerned: what each entry shows, 0 for nothing.
    #[derive(Clone)]
    struct Space(Arc<Mutex<[u8; PLACES]>>);

    impl Space {
        fn new(entries: [u8; PLACES]) -> Self {
            Self(Arc::new(Mutex::new(entries)))
        }
    }

    impl Member for Space {
        fn is_gone(&self) -> bool {
            false
        }
        fn is(&self, other: &Self) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }
    }

    struct File {
        page: Mutex<u8>,
        members: Members<Space>,
    }

    impl File {
        fn new(spaces: &[Space]) -> Arc<Self> {
            let members = Members::new();
            for space in spaces {
                members.join(space.clone()).unwrap();
            }
            Arc::new(Self {
                page: Mutex::new(OLD),
                members,
            })
        }

        /// The page goes, and leaves all page tables; one place a hold of a space's lock, as a batch
        /// may end anywhere.
        fn drop_page(&self) {
            *self.page.lock().unwrap() = NEW;
            self.members.walk(|space| {
                for place in 0..PLACES {
                    space.0.lock().unwrap()[place] = 0;
                }
            });
        }
    }

    /// Runs `other` beside the drop of the page; then no space shows the old one.
    fn check(spaces: Vec<Space>, other: fn(&File, &[Space])) {
        let file = File::new(&spaces[..1]);
        let (its_file, its_spaces) = (file.clone(), spaces.clone());
        let thread = thread::spawn(move || other(&its_file, &its_spaces));
        file.drop_page();
        thread.join().unwrap();
        for space in spaces {
            let entries = *space.0.lock().unwrap();
            assert!(!entries.contains(&OLD), "{entries:?}");
        }
    }

    #[test]
    fn a_fault_shows_no_page_that_was_dropped() {
        loom::model(|| {
            check(vec![Space::new([0; 2])], |file, spaces| {
                loop {
                    let sequence = file.members.sequence();
                    let page = *file.page.lock().unwrap();
                    let mut entries = spaces[0].0.lock().unwrap();
                    if sequence == file.members.sequence() {
                        entries[1] = page;
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
                vec![Space::new([OLD; 2]), Space::new([0; 2])],
                |file, spaces| {
                    file.members.follow(spaces[1].clone()).unwrap();
                    for place in 0..PLACES {
                        let parent = spaces[0].0.lock().unwrap();
                        spaces[1].0.lock().unwrap()[place] = parent[place];
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
                let mut entries = spaces[0].0.lock().unwrap();
                entries[0] = core::mem::take(&mut entries[1]);
            });
        });
    }
}
