//! Tests of messages that wait in an inbox, and of the ways in which it ends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read, Write};

fn both() -> (Inbox, UnixStream) {
    let (front, back) = UnixStream::pair().unwrap();
    front.set_nonblocking(true).unwrap();
    (Inbox::new(back, None), front)
}

fn message(length: usize) -> Vec<u8> {
    let header = [1, VERSION, u32::try_from(length).unwrap()].map(u32::to_ne_bytes);
    [header.concat(), vec![0; length]].concat()
}

fn send(front: &UnixStream, bytes: &[u8], descriptors: usize) -> Result<usize, Errno> {
    let files = vec![front.as_fd(); descriptors];
    let mut room = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(
        front,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )
}

/// Sends messages until that fails. Returns the number of messages sent, and the error.
fn fill(inbox: &Inbox, front: &UnixStream, length: usize, descriptors: usize) -> (usize, Errno) {
    let message = message(length);
    for count in 0.. {
        if let Err(errno) = send(front, &message, descriptors) {
            return (count, errno);
        }
        inbox.take_ahead();
    }
    unreachable!()
}

#[test]
fn messages_wait_in_order_with_their_descriptors() {
    let (inbox, mut front) = both();
    for length in 0..40 {
        send(&front, &message(length), length % 3).unwrap();
    }
    front.write_all(&message(9)[..5]).unwrap();
    assert!(!inbox.has_news());
    while inbox.received().bytes.is_empty() || inbox.received().messages.len() < 40 {
        assert!(inbox.take_ahead());
    }
    for length in 0..40 {
        assert!(inbox.has_news());
        let found = inbox.find().unwrap();
        let message = found.message.unwrap();
        assert_eq!(
            (message.body.len(), message.files.len(), found.unfinished),
            (length, length % 3, true)
        );
    }
    assert!(!inbox.has_news());
    front.write_all(&message(9)[5..]).unwrap();
    drop(front);
    assert!(!inbox.take_ahead(), "it is gone");
    assert!(inbox.has_news());
    assert_eq!(inbox.find().unwrap().message.unwrap().body.len(), 9);
    assert!(inbox.has_news());
    assert!(matches!(inbox.find(), Err(ConnectionEnd::Gone)));
}

#[test]
fn a_front_end_that_is_too_far_ahead_is_cut_off() {
    for (length, descriptors, most) in [
        (0, 0, AHEAD_MESSAGES),
        (8, MESSAGE_FILES, AHEAD_FILES / MESSAGE_FILES),
        (8, 1, AHEAD_FILES),
        (1024, 0, AHEAD_BYTES / 1024),
    ] {
        let (inbox, mut front) = both();
        let (count, errno) = fill(&inbox, &front, length, descriptors);
        assert_eq!((count, errno), (most + 1, Errno::PIPE));
        let Err(ConnectionEnd::Broken(why)) = inbox.find() else {
            panic!("{count} messages are fine");
        };
        assert!(why.contains(&format!("{count} messages")), "{why}");
        assert!(inbox.check().is_err());
        assert_eq!(front.read(&mut [0; 8]).unwrap(), 0);
        let waiting = inbox.received().messages.len();
        inbox.clear();
        assert_eq!((waiting, inbox.received().messages.len()), (count, 0));
    }
}

#[test]
fn what_lies_in_the_socket_of_one_that_is_cut_off_is_discarded() {
    let (inbox, front) = both();
    send(&front, &message(8), MESSAGE_FILES + 1).unwrap();
    let mut more = 0;
    while send(&front, &message(8), 253).is_ok() {
        more += 1;
    }
    assert!(more > 3);
    assert!(!inbox.take_ahead());
    assert_eq!(
        inbox.received().files.len(),
        MESSAGE_FILES + 1,
        "for the disk's thread to close"
    );
    assert_eq!(
        recv(&inbox, &mut [0; 8], RecvFlags::DONTWAIT).map(|(got, _)| got),
        Ok(0)
    );
    let Err(ConnectionEnd::Broken(why)) = inbox.find() else {
        panic!("it is not cut off");
    };
    assert!(why.contains("more than 8 descriptors"), "{why}");
}

#[test]
fn a_narrow_socket_holds_few_messages() {
    let (inbox, mut front) = both();
    crate::vhost_user::channel::narrow(&front).unwrap();
    let mut sent = 0;
    while front.write(&[1]).is_ok() {
        sent += 1;
    }
    assert!((1..=8).contains(&sent), "{sent}");
    assert!(inbox.take_ahead());
}
