//! A minimal HTTP server, sufficient for Prometheus: `GET /metrics`, one request per connection.

use super::access::AccessControl;
use super::openmetrics::CONTENT_TYPE;
use super::slots::{Slots, Stage, Ticket};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The maximum size of a request's head in bytes.
const HEAD_MAX: usize = 8 << 10;
/// The maximum number of headers in a request.
const HEADERS_MAX: usize = 64;
/// The timeout for a client's request, and again for the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for sending the answer that the server is busy.
const BUSY_TIMEOUT: Duration = Duration::from_millis(10);
/// The delay before the next connection is accepted after one has failed.
const RETRY: Duration = Duration::from_millis(200);

/// Answers requests on `listener` and never returns. Each connection has one request and a thread
/// of its own, at most [`CONNECTIONS_MAX`](super::slots::CONNECTIONS_MAX) at a time; others get
/// 503. `access` decides which requests are admitted. `render` returns the metrics and is called
/// for each request for them, maybe by several threads at a time.
pub(super) fn serve(
    listener: &TcpListener,
    access: AccessControl,
    render: impl Fn() -> String + Send + Sync + 'static,
) {
    let (render, access) = (Arc::new(render), Arc::new(access));
    let slots = Slots::default();
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // The process has no descriptor left, or the connection is closed already.
            thread::sleep(RETRY);
            continue;
        };
        let stream = Arc::new(stream);
        let user = access.user_of(&stream);
        let Some(ticket) = slots.take(&stream, !access.is_trusted(user)) else {
            let _ = stream.set_write_timeout(Some(BUSY_TIMEOUT));
            let busy = Reply::text("503 Service Unavailable", "busy\n");
            let _ = respond(&stream, &busy, true);
            continue;
        };
        let (render, access) = (Arc::clone(&render), Arc::clone(&access));
        // If no thread can be started, the closure is dropped, and `ticket` with it.
        let _ = thread::Builder::new().name("http".into()).spawn(move || {
            // An error is ignored, since a client that hung up needs no answer.
            let _ = answer(&stream, &ticket, &access, user, &*render);
        });
    }
}

/// The answer to a request.
struct Reply {
    status: &'static str,
    kind: &'static str,
    text: String,
}

impl Reply {
    fn text(status: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            text: text.into(),
        }
    }
}

/// Reads a request and answers it. Returns early if `ticket` was revoked.
fn answer(
    stream: &TcpStream,
    ticket: &Ticket,
    access: &AccessControl,
    user: Option<u32>,
    render: &dyn Fn() -> String,
) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let head = read_head(stream)?;
    if !ticket.set(Stage::Working) {
        return Ok(());
    }
    let (reply, body) = match &head {
        Some(head) => reply(head, stream, access, user, render)?,
        None => {
            let status = "431 Request Header Fields Too Large";
            (Reply::text(status, "too long\n"), true)
        }
    };
    if !ticket.set(Stage::Sending) {
        return Ok(());
    }
    respond(stream, &reply, body)
}

/// Returns the reply to the request in `head`, and whether to send its body.
fn reply(
    head: &[u8],
    stream: &TcpStream,
    access: &AccessControl,
    user: Option<u32>,
    render: &dyn Fn() -> String,
) -> io::Result<(Reply, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(_)) = request.parse(head) else {
        return Ok((Reply::text("400 Bad Request", "not HTTP\n"), true));
    };
    let method = request.method.unwrap_or_default();
    let path = request.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let reply = match access.admit(&request, stream.local_addr()?.ip(), user) {
        Err(refusal) => Reply::text(refusal.status, refusal.text),
        Ok(()) => match (method, path) {
            ("GET" | "HEAD", "/metrics") => Reply {
                status: "200 OK",
                kind: CONTENT_TYPE,
                text: render(),
            },
            ("GET" | "HEAD", "/") => Reply::text("200 OK", "ebb metrics: see /metrics\n"),
            ("GET" | "HEAD", _) => Reply::text("404 Not Found", "see /metrics\n"),
            _ => Reply::text("405 Method Not Allowed", "GET only\n"),
        },
    };
    Ok((reply, method != "HEAD"))
}

/// Reads until the empty line behind the headers. Returns `None` if the head is longer than
/// [`HEAD_MAX`]. Fails if the client hangs up or is too slow.
fn read_head(mut stream: &TcpStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    // The number of rounds is bounded, since each adds at least a byte.
    while head.len() <= HEAD_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => head.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n")
            || head.windows(2).any(|end| end == b"\n\n")
        {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// Sends `reply`, with its text if `body` is set.
fn respond(mut stream: &TcpStream, reply: &Reply, body: bool) -> io::Result<()> {
    let Reply { status, kind, text } = reply;
    let more = match &status[..3] {
        "405" => "Allow: GET, HEAD\r\n",
        "401" => "WWW-Authenticate: Bearer\r\n",
        _ => "",
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         {more}Connection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes())?;
    if body {
        stream.write_all(text.as_bytes())?;
    }
    stream.shutdown(std::net::Shutdown::Write)
}

#[cfg(test)]
mod tests {
    use super::super::access::tests::access;
    use super::super::slots::CONNECTIONS_MAX;
    use super::*;
    use std::net::SocketAddr;

    fn start() -> SocketAddr {
        start_for(rustix::process::geteuid().as_raw())
    }

    fn start_for(user: u32) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // The thread ends with the test's process.
        thread::spawn(move || serve(&listener, access(user), || "# EOF\n".to_owned()));
        address
    }

    fn say(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(request);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn prometheus_is_answered() {
        let address = start();
        let text = say(
            address,
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
        );
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
        assert!(head.contains("Content-Length: 6"), "{head}");
        assert_eq!(body, "# EOF\n");
        let text = say(address, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert!(text.ends_with("close\r\n\r\n"), "{text}");
    }

    #[test]
    fn the_rest_is_refused_by_name() {
        let address = start();
        for (request, status) in [
            (
                &b"GET /etc/passwd HTTP/1.1\r\nHost: [::1]\r\n\r\n"[..],
                "404",
            ),
            (
                b"POST /metrics HTTP/1.1\r\nHost: localhost:9732\r\n\r\n",
                "405",
            ),
            (b"GET /metrics HTTP/1.1\r\n\r\n", "400"),
            (
                b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                "421",
            ),
            (b"\x16\x03\x01 hello\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
        ] {
            let text = say(address, request);
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
        }
        let mut long = b"GET / HTTP/1.1\r\nx: ".to_vec();
        long.resize(HEAD_MAX + 2, b'a');
        assert!(say(address, &long).starts_with("HTTP/1.1 431"));
    }

    /// Each slot is taken by a client that sends nothing or half a request.
    #[test]
    fn clients_that_wait_make_room() {
        let address = start();
        let slow: Vec<_> = (0..3 * CONNECTIONS_MAX)
            .map(|number| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(&b"GET /met"[..number % 8]).unwrap();
                stream
            })
            .collect();
        let text = say(address, b"GET /metrics HTTP/1.0\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        // The first clients were disconnected without waiting for their timeout.
        let mut first = &slow[0];
        assert!(
            !matches!(first.read(&mut [0; 8]), Ok(1..)),
            "it was answered"
        );
        drop(slow);
    }

    #[test]
    fn other_users_are_told_why_they_are_refused() {
        let own = rustix::process::geteuid().as_raw();
        // Root is always admitted, so a test that runs as root sees no refusal.
        let address = start_for(own + 1);
        let text = say(address, b"GET /metrics HTTP/1.0\r\n\r\n");
        if own == 0 {
            assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        } else {
            assert!(text.starts_with("HTTP/1.1 403"), "{text}");
            assert!(text.contains(&format!("not to user {own}")), "{text}");
        }
    }
}
