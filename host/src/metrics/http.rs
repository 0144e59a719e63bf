//! As much HTTP as Prometheus needs: `GET /metrics`, one request a connection.

use super::openmetrics::CONTENT_TYPE;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A longer head of a request is refused.
const HEAD_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// How long a client gets for its request, and again to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections at a time; more are told to come again.
const CONNECTIONS_MAX: usize = 8;
/// Until the next connection is tried after one could not be taken.
const RETRY: Duration = Duration::from_millis(200);

/// Serves what `render` makes until the process ends. `render` is called for each request.
pub(super) fn serve(listener: &TcpListener, render: impl Fn() -> String + Send + Sync + 'static) {
    let render = Arc::new(render);
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, or a connection that is gone already.
            thread::sleep(RETRY);
            continue;
        };
        // Only this thread raises it; Relaxed, as it says nothing of other memory.
        if busy.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            let _ = stream.set_write_timeout(Some(Duration::from_millis(10)));
            let _ = respond(
                stream,
                "503 Service Unavailable",
                "text/plain",
                "busy\n",
                true,
            );
            continue;
        }
        busy.fetch_add(1, Ordering::Relaxed);
        let (render, done) = (Arc::clone(&render), Busy(Arc::clone(&busy)));
        // Should there be no thread, the closure goes, and `done` with it.
        let _ = thread::Builder::new().name("http".into()).spawn(move || {
            let _done = done;
            // Whoever hung up does not want to know.
            let _ = answer(stream, &*render);
        });
    }
}

/// One connection less when it is dropped, however its thread ends.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, render: &dyn Fn() -> String) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = match read_head(&mut stream)? {
        Some(head) => head,
        None => {
            let status = "431 Request Header Fields Too Large";
            return respond(stream, status, "text/plain", "too long\n", true);
        }
    };
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let (method, target) = match request.parse(&head) {
        Ok(httparse::Status::Complete(_)) => (
            request.method.unwrap_or_default(),
            request.path.unwrap_or_default(),
        ),
        _ => return respond(stream, "400 Bad Request", "text/plain", "not HTTP\n", true),
    };
    let body = method != "HEAD";
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET" | "HEAD", "/metrics") => respond(stream, "200 OK", CONTENT_TYPE, &render(), body),
        ("GET" | "HEAD", "/") => {
            let text = "ebb metrics: see /metrics\n";
            respond(stream, "200 OK", "text/plain", text, body)
        }
        ("GET" | "HEAD", _) => respond(
            stream,
            "404 Not Found",
            "text/plain",
            "see /metrics\n",
            body,
        ),
        _ => respond(
            stream,
            "405 Method Not Allowed",
            "text/plain",
            "GET only\n",
            true,
        ),
    }
}

/// Reads to the empty line; `None` if it does not come within [`HEAD_MAX`].
fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    // Bounded: each turn takes a byte at least.
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

fn respond(
    mut stream: TcpStream,
    status: &str,
    kind: &str,
    text: &str,
    body: bool,
) -> io::Result<()> {
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         {allow}Connection: close\r\n\r\n",
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
    use super::*;
    use std::net::SocketAddr;

    fn start() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Ends with the test's process.
        thread::spawn(move || serve(&listener, || "# EOF\n".to_owned()));
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
            b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n",
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
            (&b"GET /etc/passwd HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
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

    #[test]
    fn slow_clients_are_in_nobodys_way() {
        let address = start();
        let slow: Vec<_> = (0..CONNECTIONS_MAX - 1)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"GET /met").unwrap();
                stream
            })
            .collect();
        let text = say(address, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        drop(slow);
    }
}
