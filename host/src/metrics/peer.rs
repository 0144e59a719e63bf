//! Finds the local user at the other end of a TCP connection.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

/// The kernel's lists of TCP sockets. A program may reach an IPv4 address by an IPv6 socket.
const LISTS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The maximum number of bytes of a list that are read: those of a million sockets.
const LIST_MAX: u64 = 150 << 20;

/// Returns the number of the user who owns the other end of `stream`, from the kernel's lists of
/// TCP sockets. Returns `None` if it is on another machine or in another network namespace, is
/// closed already, or the lists cannot be read.
pub(super) fn user_of(stream: &TcpStream) -> Option<u32> {
    let ends = [stream.peer_addr().ok()?, stream.local_addr().ok()?];
    LISTS.into_iter().find_map(|list| {
        let file = BufReader::new(File::open(list).ok()?.take(LIST_MAX));
        user_in(file, ends)
    })
}

/// Returns the owner of the socket in `list` whose own address is `ends[0]` and whose peer is
/// `ends[1]`.
fn user_in(list: impl BufRead, ends: [SocketAddr; 2]) -> Option<u32> {
    let ends = ends.map(|end| (end.ip().to_canonical(), end.port()));
    list.lines().map_while(Result::ok).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, own, other, _, _, _, _, user, _, inode, ..] = words[..] else {
            return None;
        };
        // A socket that no process has open any more is listed with user 0 and inode 0.
        let is_open = inode != "0";
        let found = is_open && address(own)? == ends[0] && address(other)? == ends[1];
        found.then(|| user.parse().ok()).flatten()
    })
}

/// Parses an address like `0100007F:2604`: the words of the IP address in this CPU's byte order,
/// and the port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok();
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?.to_ne_bytes()).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, piece) in bytes.chunks_exact_mut(4).enumerate() {
                piece.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const LIST: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2604 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 20486 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:2604 01 00000000:00000000 00:00000000 00000000  1001        0 20487 1 0 20 4 30 10 -1
   2: 0100007F:2604 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 20488 1 0 20 4 30 10 -1
   3: 0100007F:9C41 0100007F:2604 06 00000000:00000000 03:00000ED9 00000000     0        0 0 3 0
   4: 0000000000000000FFFF00000100007F:9C42 0000000000000000FFFF00000100007F:2604 01 00000000:00000000 00:00000000 00000000  1002        0 20489 1 0
   5: nonsense
";

    #[test]
    fn the_socket_of_the_other_end_is_found() {
        let own: SocketAddr = "127.0.0.1:9732".parse().unwrap();
        let user = |peer: &str| user_in(LIST.as_bytes(), [peer.parse().unwrap(), own]);
        assert_eq!(user("127.0.0.1:40000"), Some(1001));
        assert_eq!(user("[::ffff:127.0.0.1]:40000"), Some(1001));
        assert_eq!(user("127.0.0.1:40002"), Some(1002));
        // A closed socket is listed with user 0, which does not mean root.
        assert_eq!(user("127.0.0.1:40001"), None);
        assert_eq!(user("127.0.0.1:40003"), None);
        assert_eq!(user("10.0.0.1:40000"), None);
    }

    #[test]
    fn this_process_is_found_as_this_user() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // The machine may lack IPv6.
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().unwrap();
            assert_eq!(user_of(&stream), Some(own), "{address}");
            drop(client);
            assert_eq!(user_of(&stream), None, "{address}");
        }
    }
}
