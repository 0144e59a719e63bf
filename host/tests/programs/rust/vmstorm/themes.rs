//! What the actors of a round are after.

use crate::actor::Actor;
use crate::files::Nature;

/// Deeds of an actor in a round.
const DEEDS: u64 = 14;

/// One kind of round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Everything.
    Mix,
    /// Files are cut while those who map them put private memory in their place.
    Replace,
    /// Files are cut and emptied while mappings move and processes fork.
    Move,
    /// Stacks grow beside mappings that come and go.
    Grow,
    /// Calls that end midway in a page where others store.
    Tail,
    /// Files are cut and at once longer again and written.
    Revive,
    /// A disk is written from caches while forked children store to it.
    Disk,
}

impl Theme {
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Mix, "mix"),
        (Self::Replace, "replace"),
        (Self::Move, "move"),
        (Self::Grow, "grow"),
        (Self::Tail, "tail"),
        (Self::Revive, "revive"),
        (Self::Disk, "disk"),
    ];

    /// Its number, for the control block.
    pub fn number(self) -> u32 {
        self as u32
    }

    pub fn of_number(number: u32) -> Self {
        Self::ALL[number as usize].0
    }

    /// Whether it makes sense with so many threads and such files.
    pub fn fits(self, threads: usize, has_disk: bool) -> bool {
        match self {
            Self::Grow => threads >= 2,
            Self::Disk => has_disk,
            _ => true,
        }
    }
}

impl Actor<'_> {
    /// What this actor does in a round.
    pub fn race(&mut self, theme: Theme) {
        if theme == Theme::Grow && self.thread < 2 {
            let times = 2 + self.actors as u64 / 4;
            self.duel(3 * times);
            return;
        }
        // Who cuts in this round; at least one does, and one does not.
        let cuts = (self.id + crate::control::round() as usize) % self.actors.clamp(2, 3) == 0;
        for _ in 0..DEEDS {
            if !self.may_do() {
                return;
            }
            match theme {
                Theme::Mix | Theme::Grow => self.any_deed(),
                Theme::Replace if cuts => self.cut_large(),
                Theme::Replace if self.random.once_in(2) => self.replace(),
                Theme::Move if cuts => self.cut_large(),
                Theme::Move => self.move_deed(),
                Theme::Tail => self.tail_deed(),
                Theme::Revive if cuts => self.cut_once(),
                Theme::Revive => self.revive_deed(),
                Theme::Disk => self.disk_deed(),
                Theme::Replace => self.any_deed(),
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
                self.store(file, false);
            }
            36 => self.replace(),
            _ => {
                let file = self.any_file();
                let cut_short = self.random.once_in(3);
                self.write(file, false, cut_short);
            }
        }
    }

    /// Ends a large file and makes it long again, or empties it.
    fn cut_large(&mut self) {
        let file = self.file(&[0, 1, 1, 1, 2]);
        match self.random.below(4) {
            0 => self.clear(file),
            1 => self.cut(file),
            _ => {
                self.cut(file);
                self.random.dawdle();
                self.extend(file);
            }
        }
    }

    fn move_deed(&mut self) {
        match self.random.below(8) {
            0..=2 => self.shuttle(),
            3 => self.fork_that_stays(),
            4..=5 => {
                let file = self.file(&[0, 1, 1, 2, 3]);
                self.store(file, false);
            }
            6 => self.remap(),
            _ => {
                let file = self.memory_file();
                self.map(Some(file.number), true);
            }
        }
    }

    fn tail_deed(&mut self) {
        let file = self.file(&[0, 0, 2]);
        match self.random.below(8) {
            0..=3 => self.write(file, true, true),
            4..=6 => self.store(file, true),
            _ if self.random.once_in(4) => self.clear(file),
            _ => {}
        }
    }

    /// Ends a large file, at a size that nobody else chooses.
    fn cut_once(&mut self) {
        let file = self.file(&[1, 1, 2]);
        let size = 8 * (1 + self.random.below(file.bytes() / 16));
        self.cut_to(file, size);
        self.random.dawdle();
    }

    fn revive_deed(&mut self) {
        let file = self.file(&[1, 1, 2]);
        if self.random.once_in(3) {
            self.write(file, false, false);
        } else {
            self.revive(file);
        }
    }

    fn disk_deed(&mut self) {
        let file = &self.files[self.files.len() - 1];
        // The first thread of a process forks, the others have the disk written.
        match self.random.below(8) {
            0..=2 if self.thread == 0 => self.fork_that_stores(file),
            0..=2 => self.sync_disk(file),
            3..=4 => self.store(file, false),
            5 => self.write(file, false, false),
            6 => self.sync_disk(file),
            _ => self.map(Some(file.number), true),
        }
    }
}
