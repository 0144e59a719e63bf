//! A process without a free descriptor still serves its disks. The test is alone in its file,
//! because the limit is that of the process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod frontend;

use ebb_blk::image::{Location, Spec};
use ebb_blk::server::{Disk, Options, Server};
use frontend::{Client, DATA, IN, OK, Request};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

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
    let [disk, other] = ["disk", "other"].map(|name| Disk {
        name: name.into(),
        spec: Spec {
            location: Location::Ram { bytes: 1 << 20 },
            read_only: false,
            cached: false,
        },
        settings: Vec::new(),
    });
    let rude = server.attach(&other).unwrap();
    let mut client = Client::connect(server.attach(&disk).unwrap(), 1).unwrap();
    assert_eq!(read(&mut client), OK);
    let before = getrlimit(Resource::Nofile);
    // More descriptors than this are open. `poll` accepts no more descriptors than the limit.
    let none = Rlimit {
        current: Some(4),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nofile, none).unwrap();
    // Each message has the disk's thread make its epoll again.
    for _ in 0..3 {
        client.config(8).unwrap();
        assert_eq!(read(&mut client), OK);
    }
    // A descriptor that does not fit ends the connection of its front-end, and the disk goes on.
    // This is `SET_VRING_CALL` of ring 0.
    let message = [13_u32, 1, 8, 0, 0].map(u32::to_ne_bytes).concat();
    rude.send_with_fds(&[&message[..]], &[rude.as_raw_fd()])
        .unwrap();
    rude.set_read_timeout(Some(Duration::from_secs(300)))
        .unwrap();
    // If unread bytes are left, the connection is reset.
    let end = (&rude).read(&mut [0; 32]).map_err(|error| error.kind());
    assert!(
        matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)),
        "{end:?}"
    );
    setrlimit(Resource::Nofile, before).unwrap();
    client.config(8).unwrap();
    assert_eq!(read(&mut client), OK);
    assert!(server.instances()["disk"].is_running());
}
