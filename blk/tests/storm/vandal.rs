//! A front-end that misbehaves.

use crate::Weather;
use crate::frontend::{Client, DATA, Failed, IN, MEMORY, OK, OUT, QUEUE_SIZE, Request};
use std::io::Write;
use std::os::unix::net::UnixStream;
use vhost::VhostBackend;
use vm_memory::{Bytes, GuestAddress};

/// Number of words written over rings and headers while requests are under way.
const SCRIBBLES: u64 = 20_000;
/// End of the descriptors, rings and headers.
const RINGS: u64 = 0x1_2000;

/// A front-end that misbehaves at random.
pub(crate) struct Vandal {
    disk: usize,
    state: u64,
}

impl Vandal {
    /// Makes a vandal for disk number `disk`.
    pub(crate) fn new(disk: usize) -> Self {
        Self {
            disk,
            state: 0xda94_2042_e4dd_58b5 ^ (disk as u64) << 9,
        }
    }

    fn random(&mut self) -> u64 {
        // xorshift64.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Misbehaves repeatedly while the weather is rough.
    pub(crate) fn rage(&mut self, weather: &Weather) {
        while weather.is_rough() {
            // Errors are ignored, because the back-end may be killed at any time. Only effects on
            // others matter, and the players check these.
            if self.act(weather).is_ok() {
                weather.count(&weather.mischief);
            } else {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        // Its disk still works.
        let stream = UnixStream::connect(weather.socket(self.disk)).unwrap();
        let mut client = Client::connect(stream, 1).unwrap();
        let request = request(OUT, 0, DATA, 4096);
        assert_eq!(client.perform(0, request).unwrap().0, OK);
    }

    /// Misbehaves once, in a random way.
    fn act(&mut self, weather: &Weather) -> Result<(), Failed> {
        let mut stream = UnixStream::connect(weather.socket(self.disk))?;
        match self.random() % 8 {
            0 => {
                stream.write_all(&[0xff; 64])?;
                return Ok(());
            }
            1 => {
                // Half of a message.
                stream.write_all(&[1, 0, 0])?;
                return Ok(());
            }
            _ => {}
        }
        let mut client = Client::connect(stream, 1)?;
        let before = client.available(0);
        for slot in 0..40_u64 {
            let kind = if slot % 2 == 0 { IN } else { OUT };
            let data = DATA + slot * 65536 + slot % 3;
            client.submit(0, request(kind, slot % 8, data, 65536))?;
        }
        match self.random() % 6 {
            // The front-end dies with all requests under way.
            0 => client.kick(0, before)?,
            // The front-end truncates its memory, sometimes with the rings.
            1 => {
                client.ring(0)?;
                client.cut_memory([DATA, 0, 0x9000, DATA + 5000][(self.random() % 4) as usize])?;
                client.ring(0)?;
                let _ = client.frontend.get_features();
            }
            // Its ring's index goes backwards, and then far ahead.
            2 => {
                client.ring(0)?;
                client.set_available(0, before.wrapping_sub(3))?;
                client.ring(0)?;
                client.set_available(0, before.wrapping_add(QUEUE_SIZE * 3))?;
                client.ring(0)?;
                let _ = client.frontend.get_features();
            }
            // The front-end overwrites requests while they are read.
            _ => {
                for _ in 0..SCRIBBLES {
                    let at = self.random() % (RINGS / 8) * 8;
                    let word = match self.random() % 3 {
                        0 => self.random(),
                        1 => self.random() % MEMORY,
                        _ => self.random() & 0x0003_0007_0000_ffff,
                    };
                    client.memory.write_obj(word, GuestAddress(at))?;
                    if self.random().is_multiple_of(64) {
                        client.ring(0)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn request(kind: u32, block: u64, data: u64, bytes: u32) -> Request {
    Request {
        kind,
        sector: block * 128,
        data,
        bytes,
    }
}
