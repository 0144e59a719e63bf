//! Tests threads of the standard library and the data that they share.
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

thread_local! {
    static OWN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn channels() {
    let (sender, receiver) = mpsc::channel();
    let workers: Vec<_> = (0..8_u64)
        .map(|id| {
            let sender = sender.clone();
            thread::spawn(move || {
                for i in 0..500 {
                    sender.send(id * 1000 + i).expect("the receiver lives");
                }
            })
        })
        .collect();
    drop(sender);
    let sum: u64 = receiver.iter().sum();
    for worker in workers {
        worker.join().expect("no panic");
    }
    println!("sum over the channel: {sum}");
    let (sender, receiver) = mpsc::sync_channel(2);
    let producer = thread::spawn(move || (0..100).take_while(|i| sender.send(*i).is_ok()).count());
    let first: Vec<i32> = receiver.iter().take(10).collect();
    drop(receiver);
    println!("{first:?}, the producer stopped early: {}", producer.join().expect("no panic") < 100);
    let (_keep, receiver) = mpsc::channel::<()>();
    println!("{:?}", receiver.recv_timeout(Duration::from_millis(20)));
}

fn locks() {
    let map = Arc::new(RwLock::new(HashMap::new()));
    let counter = Arc::new(Mutex::new(0_u64));
    let atomic = Arc::new(AtomicU64::new(0));
    let barrier = Arc::new(Barrier::new(6));
    let threads: Vec<_> = (0..6)
        .map(|id| {
            let (map, counter) = (Arc::clone(&map), Arc::clone(&counter));
            let (atomic, barrier) = (Arc::clone(&atomic), Arc::clone(&barrier));
            thread::Builder::new()
                .name(format!("worker-{id}"))
                .stack_size(256 << 10)
                .spawn(move || {
                    for i in 0..1000_u64 {
                        *counter.lock().expect("not poisoned") += i;
                        atomic.fetch_add(1, Ordering::Relaxed);
                        if i % 100 == 0 {
                            map.write().expect("not poisoned").insert((id, i), i * i);
                        }
                        OWN.with_borrow_mut(|own| own.push(i));
                    }
                    let leader = barrier.wait().is_leader();
                    let read = map.read().expect("not poisoned").len();
                    (leader, read, OWN.with_borrow(Vec::len), thread::current().name().map(str::to_owned))
                })
                .expect("a thread")
        })
        .collect();
    let results: Vec<_> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
    println!("leaders: {}", results.iter().filter(|r| r.0).count());
    for (_, read, own, name) in &results {
        println!("{name:?} read {read} entries and kept {own}");
    }
    println!("{} {}", counter.lock().expect("not poisoned"), atomic.load(Ordering::Relaxed));
}

fn waiting() {
    let pair = Arc::new((Mutex::new(0), Condvar::new()));
    let other = Arc::clone(&pair);
    let thread = thread::spawn(move || {
        let mut seen = Vec::new();
        for want in 1..=5 {
            let guard = other.0.lock().expect("not poisoned");
            let guard = other.1.wait_while(guard, |now| *now < want).expect("not poisoned");
            seen.push(*guard >= want);
        }
        seen
    });
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(3));
        *pair.0.lock().expect("not poisoned") += 1;
        pair.1.notify_all();
    }
    println!("{:?}", thread.join().expect("no panic"));
    let guard = pair.0.lock().expect("not poisoned");
    let (guard, result) = pair.1.wait_timeout(guard, Duration::from_millis(10)).expect("not poisoned");
    println!("{} timed out: {}", *guard, result.timed_out());
    let parked = thread::spawn(|| {
        let start = Instant::now();
        thread::park();
        thread::park_timeout(Duration::from_millis(10));
        start.elapsed() >= Duration::from_millis(10)
    });
    thread::sleep(Duration::from_millis(5));
    parked.thread().unpark();
    println!("parked: {}", parked.join().expect("no panic"));
}

fn main() {
    channels();
    locks();
    waiting();
    static ONCE: Once = Once::new();
    static CELL: OnceLock<String> = OnceLock::new();
    let mut data = vec![1, 2, 3, 4, 5, 6];
    thread::scope(|scope| {
        for chunk in data.chunks_mut(2) {
            scope.spawn(move || chunk.iter_mut().for_each(|x| *x *= 10));
        }
        for _ in 0..4 {
            scope.spawn(|| {
                ONCE.call_once(|| println!("once"));
                CELL.get_or_init(|| "set".to_owned());
            });
        }
    });
    println!("{data:?} {:?}", CELL.get());
    let panicked = thread::Builder::new()
        .name("doomed".to_owned())
        .spawn(|| {
            std::panic::set_hook(Box::new(|info| println!("hook: {}", info.location().is_some())));
            panic!("as planned")
        })
        .expect("a thread")
        .join();
    println!("{:?}", panicked.expect_err("it panics").downcast_ref::<&str>());
    let lock = Arc::new(Mutex::new(5));
    let other = Arc::clone(&lock);
    let _ = thread::spawn(move || {
        let _guard = other.lock().expect("not poisoned");
        panic!("holding it")
    })
    .join();
    println!("poisoned: {}", lock.is_poisoned());
    println!("parallelism known: {}", thread::available_parallelism().is_ok());
    std::process::exit(11);
}
