//! A front-end that knows the contents of its disk.

use crate::Weather;
use crate::frontend::{Client, DATA, FLUSH, IN, OK, OUT, Request, SLOTS};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use vm_memory::{Bytes, GuestAddress};

/// Bytes of a disk.
pub(crate) const DISK: u64 = 1 << 20;
const BLOCK: u32 = 8192;
const BLOCKS: u64 = DISK / BLOCK as u64;
/// Guest memory of one request in bytes: a block, and space to shift it.
const SPAN: u64 = 16_384;
/// Time without an answer after which a player checks for a new back-end.
const PATIENCE: Duration = Duration::from_millis(20);
/// Number of such checks after which a request counts as lost: more than a minute.
const MAX_LOOKS: u32 = 15_000;
/// Maximum number of attempts to connect to a back-end that is being started or killed.
const MAX_TRIES: u32 = 60_000;

/// A request under way.
#[derive(Copy, Clone, Debug)]
struct Ask {
    kind: u32,
    block: u64,
    /// The version of the contents that is written or must be read.
    version: u32,
    data: u64,
}

/// A front-end that checks what it reads.
pub(crate) struct Player {
    disk: usize,
    client: Client,
    incarnation: usize,
    asked: Vec<Option<Ask>>,
    /// The version that each block holds; 0 is the initial one.
    versions: Vec<u32>,
    /// Blocks for which a request is under way.
    taken: Vec<bool>,
    state: u64,
    pub(crate) reconnects: u64,
}

impl Player {
    /// Connects to disk number `disk` and writes its initial contents.
    pub(crate) fn new(disk: usize, weather: &Weather) -> Self {
        let image = weather.folder.join(format!("d{disk}.img"));
        let mut player = Self {
            disk,
            client: Client::connect(UnixStream::connect(weather.socket(disk)).unwrap(), 1).unwrap(),
            incarnation: weather.incarnation(),
            asked: vec![None; SLOTS.into()],
            versions: vec![0; BLOCKS as usize],
            taken: vec![false; BLOCKS as usize],
            state: 0x9e37_79b9_7f4a_7c15 ^ (disk as u64 + 1),
            reconnects: 0,
        };
        // The disk is written first, because another player may have used it.
        assert!(image.exists());
        for block in 0..BLOCKS {
            player.write(block, DATA, 0);
            let request = player.request(OUT, block, DATA);
            assert_eq!(player.client.perform(0, request).unwrap().0, OK);
        }
        player
    }

    fn random(&mut self) -> u64 {
        // xorshift64.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn request(&self, kind: u32, block: u64, data: u64) -> Request {
        Request {
            kind,
            sector: block * u64::from(BLOCK) / 512,
            data,
            bytes: if kind == FLUSH { 0 } else { BLOCK },
        }
    }

    /// Does `requests` while the back-end is killed and started again, and waits for all answers.
    pub(crate) fn play(&mut self, weather: &Weather, requests: u64) {
        let mut submitted = 0;
        let mut looks = 0;
        loop {
            let before = self.client.available(0);
            while submitted < requests
                && self.client.room(0) > 0
                && !self.random().is_multiple_of(16)
            {
                submitted += u64::from(self.submit());
            }
            if self.client.available(0) != before {
                // If the back-end is gone, the notification is lost, and its successor checks the
                // ring when it starts.
                let _ = self.client.kick(0, before);
            }
            let answered = self.collect(weather);
            if self.asked.iter().all(Option::is_none) && submitted == requests {
                return;
            }
            if answered {
                looks = 0;
            } else if !self.client.wait_for(0, PATIENCE).unwrap() {
                looks += 1;
                assert!(looks < MAX_LOOKS, "lost: {:?}", self.under_way());
                self.follow(weather);
            }
        }
    }

    fn under_way(&self) -> Vec<Ask> {
        self.asked.iter().flatten().copied().collect()
    }

    fn submit(&mut self) -> bool {
        let block = self.random() % BLOCKS;
        if self.taken[block as usize] {
            return false;
        }
        let kind = match self.random() % 16 {
            0 => FLUSH,
            1..9 => OUT,
            _ => IN,
        };
        let slot = self.client.next_slot(0).unwrap();
        // In place, and through the pool.
        let shift = [0, 512, 1, 3][(self.random() % 4) as usize];
        let data = DATA + u64::from(slot) * SPAN + shift;
        let mut version = self.versions[block as usize];
        if kind == OUT {
            version += 1;
            self.write(block, data, version);
        }
        let request = self.request(kind, block, data);
        assert_eq!(self.client.submit(0, request).unwrap(), slot);
        self.taken[block as usize] = true;
        self.asked[usize::from(slot)] = Some(Ask {
            kind,
            block,
            version,
            data,
        });
        true
    }

    /// Takes and checks all answers. Returns whether there were any.
    fn collect(&mut self, weather: &Weather) -> bool {
        let mut any = false;
        while let Some((slot, status, _)) = self.client.answer(0).unwrap() {
            any = true;
            let ask = self.asked[usize::from(slot)].take();
            let ask = ask.expect("an answer to no request, or a second one");
            assert_eq!(status, OK, "disk {}: {ask:?}", self.disk);
            self.taken[ask.block as usize] = false;
            match ask.kind {
                OUT => self.versions[ask.block as usize] = ask.version,
                IN => self.check(ask.block, ask.data, ask.version),
                _ => {}
            }
            weather.count(&weather.answered);
        }
        any
    }

    /// Connects to the current back-end if it is a new one.
    fn follow(&mut self, weather: &Weather) {
        for _ in 0..MAX_TRIES {
            let incarnation = weather.incarnation();
            if incarnation == self.incarnation {
                return;
            }
            let stream = UnixStream::connect(weather.socket(self.disk));
            if let Ok(stream) = stream
                && self.client.reconnect(stream).is_ok()
            {
                self.incarnation = incarnation;
                self.reconnects += 1;
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("disk {} cannot be connected to again", self.disk);
    }

    /// Reads the whole disk and compares it.
    pub(crate) fn check_everything(&mut self, weather: &Weather) {
        self.follow(weather);
        for block in 0..BLOCKS {
            let request = self.request(IN, block, DATA + 1);
            assert_eq!(self.client.perform(0, request).unwrap().0, OK);
            self.check(block, DATA + 1, self.versions[block as usize]);
        }
    }

    fn write(&self, block: u64, data: u64, version: u32) {
        let bytes = contents(self.disk, block, version);
        self.client
            .memory
            .write_slice(&bytes, GuestAddress(data))
            .unwrap();
    }

    fn check(&self, block: u64, data: u64, version: u32) {
        let mut bytes = vec![0; BLOCK as usize];
        self.client
            .memory
            .read_slice(&mut bytes, GuestAddress(data))
            .unwrap();
        assert!(
            bytes == contents(self.disk, block, version),
            "disk {}: block {block} is not what was written last, version {version}",
            self.disk
        );
    }
}

/// Returns the contents of a block. No two blocks, disks or versions have the same.
fn contents(disk: usize, block: u64, version: u32) -> Vec<u8> {
    let mut word = (disk as u64) << 56 | block << 32 | u64::from(version);
    let mut bytes = Vec::with_capacity(BLOCK as usize);
    while bytes.len() < BLOCK as usize {
        bytes.extend(word.to_le_bytes());
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    bytes
}
