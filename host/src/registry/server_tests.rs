//! Tests of a server in a folder of its own with clients of every kind.

use super::*;
use crate::machine::{GiveBack, KernelKind};
use crate::registry::protocol::{History, Reply};
use crate::registry::published::Facts;
use crate::registry::scratch::Scratch;
use crate::registry::socket;
use std::io::{BufRead, BufReader};
use std::time::SystemTime;

/// A server in a folder of its own.
struct Running {
    scratch: Scratch,
    name: String,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(name: &str) -> Self {
        Self::start_with(name, false)
    }

    fn start_with(name: &str, kernel_listens: bool) -> Self {
        let scratch = Scratch::new(name);
        let (stop, stopped) = UnixStream::pair().unwrap();
        let facts = Facts {
            name: "job".into(),
            program: "job".into(),
            kernel: KernelKind::Linux,
            accel: "TCG".into(),
            give_back: GiveBack::Off,
            host_pages: "base",
            memory_bytes: 1 << 30,
            cpus: 1,
            started: SystemTime::now(),
        };
        let listening = Listening::new(scratch.folder()).unwrap();
        let name = listening.path();
        let name = name.file_name().unwrap().to_str().unwrap().to_owned();
        let published = Arc::new(Published::new(facts));
        let thread = thread::spawn(move || {
            let parts = RunParts {
                published,
                mapper: None,
                disks: None,
                control: kernel_listens.then(Arc::default),
                free_memory: None,
                reclaim_queue: None,
                pause_watcher: PauseWatcher::of_test(),
            };
            Server::new(listening, parts).serve(&stopped);
        });
        Self {
            scratch,
            name,
            stop,
            thread: Some(thread),
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = socket::connect(&self.scratch.folder(), &self.name).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.shutdown(std::net::Shutdown::Both).unwrap();
        self.thread.take().unwrap().join().unwrap();
        assert!(self.scratch.folder().sockets().is_empty(), "it is removed");
    }
}

fn ask(stream: &UnixStream, request: &str) -> Body {
    let mut writer = stream;
    writer.write_all(request.as_bytes()).unwrap();
    reply(stream)
}

fn reply(stream: &UnixStream) -> Body {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let json = serde_json::from_str(&line).unwrap();
    let wrong = crate::pages::problems_of("control-answer", &json);
    assert!(wrong.is_empty(), "{line}: {wrong:?}");
    serde_json::from_str::<Reply>(&line).unwrap().body
}

fn is_closed(mut stream: &UnixStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn a_mode_is_set_where_the_kernel_can_and_the_name_is_one() {
    for kernel_listens in [false, true] {
        let running = Running::start_with("server-set", kernel_listens);
        let client = running.connect();
        let set = "{\"set\":{\"give_back\":\"hinting\"}}\n";
        match ask(&client, set) {
            Body::Set(set) => assert!(kernel_listens && set.give_back == "hinting"),
            Body::Error(why) => assert!(!kernel_listens && why.contains("Ebb kernel")),
            other => panic!("{other:?}"),
        }
        for wrong in [
            "{\"set\":{\"give_back\":\"soon\"}}\n",
            "{\"set\":{\"memory\":1}}\n",
            "{\"set\":{\"give_back\":\"off\",\"memory\":1}}\n",
            "{\"set\":7}\n",
        ] {
            assert!(matches!(ask(&client, wrong), Body::Error(_)), "{wrong}");
        }
    }
}

#[test]
fn clients_are_answered_in_order() {
    let running = Running::start("server-order");
    let client = running.connect();
    let Body::Figures(figures) = ask(&client, "{\"get\":\"figures\"}\n") else {
        panic!("no figures");
    };
    assert_eq!((figures.name.as_str(), figures.used_bytes), ("job", None));
    // Two requests in one write.
    let two = "{\"get\":\"history\"}\n{\"get\":\"map\"}\n";
    (&client).write_all(two.as_bytes()).unwrap();
    let mut lines = BufReader::new(&client).lines();
    let mut next = || {
        serde_json::from_str::<Reply>(&lines.next().unwrap().unwrap())
            .unwrap()
            .body
    };
    let empty = History {
        interval_ms: 250,
        points: Vec::new(),
    };
    assert_eq!(next(), Body::History(empty));
    assert!(matches!(next(), Body::Error(text) if text.contains("Ebb kernel")));
    // A client that shuts down its sending side and waits, as `echo | socat` does.
    let last = running.connect();
    (&last).write_all(b"{\"get\":\"figures\"}\n").unwrap();
    last.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(reply(&last), Body::Figures(_)));
    assert!(is_closed(&last));
}

#[test]
fn nonsense_is_named_and_the_client_stays() {
    let running = Running::start("server-nonsense");
    let client = running.connect();
    for nonsense in [
        "\n",
        "no JSON\n",
        "{\"get\":\"root\"}\n",
        "[[[[\n",
        "\0\u{1}\n",
    ] {
        let body = ask(&client, nonsense);
        assert!(matches!(&body, Body::Error(text) if text.contains("not a request")));
    }
    assert!(matches!(
        ask(&client, "{\"get\":\"figures\"}\n"),
        Body::Figures(_)
    ));
}

#[test]
fn an_endless_request_ends_the_client_alone() {
    let running = Running::start("server-endless");
    let (other, hostile) = (running.connect(), running.connect());
    // The server may close the connection before all bytes are sent.
    let _ = (&hostile).write_all(&vec![b'x'; 1 << 20]);
    assert!(matches!(reply(&hostile), Body::Error(text) if text.contains("1024")));
    assert!(is_closed(&hostile));
    assert!(matches!(
        ask(&other, "{\"get\":\"figures\"}\n"),
        Body::Figures(_)
    ));
}

#[test]
fn many_and_slow_clients_do_not_block_others() {
    let running = Running::start("server-many");
    // Clients that send half a request, and one that sends many and never reads.
    let slow: Vec<_> = (0..3 * CLIENTS_MAX)
        .map(|_| {
            let client = running.connect();
            let _ = (&client).write_all(b"{\"get\":");
            client
        })
        .collect();
    let deaf = running.connect();
    deaf.set_nonblocking(true).unwrap();
    while (&deaf)
        .write(&b"{\"get\":\"figures\"}\n".repeat(64))
        .is_ok()
    {}
    for _ in 0..3 {
        let client = running.connect();
        assert!(matches!(
            ask(&client, "{\"get\":\"figures\"}\n"),
            Body::Figures(_)
        ));
    }
    // The server has closed the oldest client.
    assert!(is_closed(&slow[0]));
}

#[test]
fn a_wish_that_qemu_does_not_hear_is_refused() {
    let running = Running::start("server-cpus");
    let client = running.connect();
    // The QEMU of this guest has ended.
    for wish in ["{\"cpus\":\"pause\"}\n", "{\"cpus\":\"pause\"}\n"] {
        let answer = ask(&client, wish);
        assert!(matches!(&answer, Body::Error(why) if why.contains("monitor")));
    }
    let runs = ask(&client, "{\"cpus\":\"resume\"}\n");
    assert_eq!(runs, Body::Cpus(Wish::Resume));
    let nonsense = ask(&client, "{\"cpus\":\"halt\"}\n");
    assert!(matches!(nonsense, Body::Error(why) if why.contains("not a request")));
}
