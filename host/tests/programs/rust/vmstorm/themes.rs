//! The themes of rounds, which select the operations of all actors.

use crate::actor::Actor;
use crate::control;
use crate::files::Nature;
use crate::strikes::Part;

/// The number of operations of an actor in a round without a recipe.
const DEEDS: u64 = 12;
/// The number of strikes at a file in a round in which an error would persist.
const STRIKES: usize = 3;

/// One kind of round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Theme {
    /// All operations.
    Mix,
    /// A file is cut while processes that map it replace the mapping by private memory.
    Replace,
    /// A file is cut or cleared while its mappings move and processes fork.
    Move,
    /// Stacks grow where mappings are made.
    Grow,
    /// Stacks grow where mappings are removed.
    Leave,
    /// System calls end in the middle of a page to which others store.
    Tail,
    /// Files are cut, extended at once, and written.
    Revive,
    /// A disk is written from the page cache while forked children store to it.
    Disk,
}

impl Theme {
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Mix, "mix"),
        (Self::Replace, "replace"),
        (Self::Move, "move"),
        (Self::Grow, "grow"),
        (Self::Leave, "leave"),
        (Self::Tail, "tail"),
        (Self::Revive, "revive"),
        (Self::Disk, "disk"),
    ];

    /// Returns the number of the theme for the control block.
    pub fn number(self) -> u32 {
        self as u32
    }

    pub fn of_number(number: u32) -> Self {
        Self::ALL[number as usize].0
    }

    /// Returns whether the theme makes sense with this number of threads and with or without a
    /// disk.
    pub fn fits(self, threads: usize, has_disk: bool) -> bool {
        match self {
            Self::Grow | Self::Leave => threads >= 2,
            Self::Disk => has_disk,
            _ => true,
        }
    }
}

impl Actor {
    /// Prepares this actor's part before all strike at once.
    pub fn prepare(&mut self, theme: Theme) {
        match theme {
            Theme::Replace => {
                let file = self.struck(&[0, 1, 1, 2, 3]);
                self.make_present(file);
                // A file without a descriptor can only be used through the common mapping.
                let can_map = file.nature != Nature::Anonymous;
                self.part = match self.cuts() {
                    true => Part::Cuts,
                    false if can_map => self.prepare_to_replace(file),
                    false => Part::Writes,
                };
            }
            Theme::Move => {
                let file = self.struck(&[0, 1, 2, 2, 3]);
                self.make_present(file);
                let can_map = file.nature != Nature::Anonymous;
                self.part = match self.random.below(4) {
                    _ if self.cuts() => Part::Cuts,
                    0 => Part::Writes,
                    1 | 2 if self.thread == 0 => Part::Forks,
                    _ if can_map => self.prepare_to_move(file),
                    _ => Part::Writes,
                };
            }
            Theme::Tail => {
                let file = self.struck(&[0, 0, 2]);
                if control::round() % self.actors as u64 == self.id as u64 {
                    self.clear_pages(file, 0..file.pages);
                }
            }
            Theme::Revive => {
                let file = self.struck(&[1, 1, 2]);
                self.make_present(file);
            }
            Theme::Disk => {
                let file = self.file_number(self.files.len() - 1);
                // The first thread of a process forks, and the others sync the disk.
                self.part = match self.random.below(6) {
                    0 => Part::Writes,
                    _ if self.thread == 0 => self.prepare_to_inherit(file),
                    1 => self.prepare_to_move(file),
                    _ => Part::Syncs,
                };
            }
            Theme::Mix | Theme::Grow | Theme::Leave => {}
        }
    }

    /// Performs the operations of this actor in a round.
    pub fn strike(&mut self, theme: Theme) {
        let duels = 4 + self.actors as u64;
        match theme {
            Theme::Grow | Theme::Leave if self.thread < 2 => {
                self.duel(duels, theme == Theme::Leave);
            }
            Theme::Mix | Theme::Grow | Theme::Leave => self.some_deeds(),
            Theme::Replace => {
                let file = self.struck(&[0, 1, 1, 2, 3]);
                for _ in 0..STRIKES {
                    let part = self.part.clone();
                    self.strike_at(file, part);
                }
            }
            Theme::Move => {
                let part = self.part.clone();
                self.strike_at(self.struck(&[0, 1, 2, 2, 3]), part);
            }
            Theme::Tail => self.strike_at_pages(self.struck(&[0, 0, 2])),
            Theme::Revive => self.strike_again(self.struck(&[1, 1, 2])),
            Theme::Disk => {
                let file = self.file_number(self.files.len() - 1);
                let part = self.part.clone();
                self.strike_at(file, part);
            }
        }
    }

    fn some_deeds(&mut self) {
        for _ in 0..DEEDS {
            if self.may_do() {
                self.any_deed();
            }
            if self.random.once_in(3) {
                self.random.dawdle();
            }
        }
    }

    fn any_deed(&mut self) {
        match self.random.below(40) {
            0..=3 => {
                let file = self.any_file();
                let shared = self.random.once_in(2);
                if file.nature == Nature::Anonymous {
                    self.clear(file);
                } else {
                    self.map(Some(file.number), shared);
                }
            }
            4..=6 => self.map(None, false),
            7..=8 => self.unmap_some(),
            9..=11 => self.remap(),
            12..=13 => self.protect(),
            14..=15 => self.advise(),
            16..=20 => self.fill(),
            21..=22 => self.look(),
            23 => self.fork_that_stays(),
            24 if self.random.once_in(3) => self.fork_that_goes(),
            25 if self.random.once_in(6) => self.spawn(),
            26..=27 => {
                let file = self.memory_file();
                self.cut(file);
            }
            28..=29 => {
                let file = self.memory_file();
                self.extend(file);
            }
            30..=31 => {
                let file = self.any_file();
                self.clear(file);
            }
            32..=35 => {
                let file = self.any_file();
                self.store(file);
            }
            _ => {
                let file = self.any_file();
                let cut_short = self.random.once_in(3);
                self.write(file, cut_short);
            }
        }
    }
}
