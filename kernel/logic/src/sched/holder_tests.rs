//! A lock's word alone, and with a queue in every interleaving.

use super::holder::Holder;

#[test]
fn one_thread_holds_it() {
    let run = || {
        let holder = Holder::new();
        assert_eq!(holder.cpu(), None);
        assert!(holder.take(0));
        assert!(!holder.take(1));
        assert_eq!(holder.cpu(), Some(0));
        assert!(!holder.release());
        assert!(holder.take(63));
        assert!(!holder.take_waiting(1));
        assert_eq!(holder.cpu(), Some(63));
        assert!(holder.release());
        assert_eq!(holder.cpu(), None);
        // Others may be in the queue.
        assert!(holder.take_waiting(5));
        assert_eq!(holder.cpu(), Some(5));
        assert!(holder.release());
        assert!(holder.take(2));
        assert!(!holder.release());
    };
    #[cfg(ebb_model)]
    loom::model(run);
    #[cfg(not(ebb_model))]
    run();
}

#[cfg(ebb_model)]
mod model {
    use super::Holder;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::sync::{Arc, Mutex};
    use loom::thread::{self, Thread};
    use std::collections::VecDeque;
    use std::vec::Vec;

    /// A thread in the queue, and whether it was woken.
    type Waiter = (Thread, Arc<AtomicBool>);

    struct Lock {
        holder: Holder,
        queue: Mutex<VecDeque<Waiter>>,
        value: UnsafeCell<usize>,
    }

    impl Lock {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                holder: Holder::new(),
                queue: Mutex::new(VecDeque::new()),
                value: UnsafeCell::new(0),
            })
        }

        fn add_one(&self, cpu: u32) {
            if !self.holder.take(cpu) {
                self.wait(cpu);
            }
            // SAFETY: the thread holds the lock. Loom fails if another one is here.
            self.value.with_mut(|value| unsafe { *value += 1 });
            if self.holder.release() {
                let first = self.queue.lock().unwrap().pop_front();
                if let Some((thread, woken)) = first {
                    woken.store(true, Ordering::SeqCst);
                    thread.unpark();
                }
            }
        }

        /// Waits on CPU `cpu` until the lock is taken, as the kernel's queue does. A lost wake-up
        /// leaves a thread parked, and loom fails.
        fn wait(&self, cpu: u32) {
            loop {
                let woken = Arc::new(AtomicBool::new(false));
                let waiter = (thread::current(), woken.clone());
                self.queue.lock().unwrap().push_back(waiter);
                if self.holder.take_waiting(cpu) {
                    let mut queue = self.queue.lock().unwrap();
                    queue.retain(|(_, other)| !Arc::ptr_eq(other, &woken));
                    return;
                }
                while !woken.load(Ordering::SeqCst) {
                    thread::park();
                }
            }
        }
    }

    fn all_get_it(threads: u32, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let lock = Lock::new();
            let others: Vec<_> = (1..threads)
                .map(|cpu| {
                    let lock = lock.clone();
                    thread::spawn(move || lock.add_one(cpu))
                })
                .collect();
            lock.add_one(0);
            for other in others {
                other.join().unwrap();
            }
            // SAFETY: all other threads have ended.
            assert_eq!(lock.value.with(|value| unsafe { *value }), threads as usize);
        });
    }

    #[test]
    fn two_threads_get_it() {
        all_get_it(2, 4);
    }

    #[test]
    fn three_threads_get_it() {
        all_get_it(3, 2);
    }
}
