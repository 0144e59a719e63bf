//! A process that has no descriptor left serves its disks on. Alone in its process, for the limit is
//! the process's.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod frontend;

use ebb_blk::image::{Location, Spec};
use ebb_blk::server::{Disk, Options, Server};
use frontend::{Client, DATA, IN, OK, Request};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn read(client: &mut Client) -> u8 {
    let request = Request {
        kind: IN,
        sector: 8,
        data: DATA,
        bytes: 4096,
    };
    client.perform(0, request).unwrap().0
}

#[test]
fn a_disk_goes_on_while_the_process_has_no_descriptor_left() {
    let server = Server::new(Options::default());
    let disk = Disk {
        name: "disk".into(),
        spec: Spec {
            location: Location::Ram { bytes: 1 << 20 },
            read_only: false,
            cached: false,
        },
    };
    let mut client = Client::connect(server.attach(&disk).unwrap(), 1).unwrap();
    assert_eq!(read(&mut client), OK);
    let before = getrlimit(Resource::Nofile);
    // All of these are open; `poll` takes no more descriptors than the limit, whichever they are.
    let none = Rlimit {
        current: Some(4),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nofile, none).unwrap();
    // After each message what is waited for is looked at anew.
    for _ in 0..3 {
        client.config(8).unwrap();
        assert_eq!(read(&mut client), OK);
    }
    setrlimit(Resource::Nofile, before).unwrap();
    client.config(8).unwrap();
    assert_eq!(read(&mut client), OK);
    assert!(server.instances()["disk"].is_running());
}
