//! The thread state's protocol: no wake-up is lost, and no thread runs twice.
//! All interleavings: `cargo test -p ebb-kernel-logic-models --release model`.

use super::state::{Left, State, ThreadState};

#[cfg(not(ebb_model))]
#[test]
fn a_wake_before_the_switch_is_kept() {
    let thread = ThreadState::new(State::Running);
    thread.prepare();
    assert!(thread.is_parking());
    assert!(!thread.wake(), "its own CPU puts it back");
    assert!(!thread.is_parking());
    assert_eq!(thread.switched_out(), Left::Enqueue);
    thread.picked();
    assert_eq!(thread.get(), State::Running);
}

#[cfg(not(ebb_model))]
#[test]
fn a_blocked_task_is_woken_once() {
    let thread = ThreadState::new(State::Running);
    thread.prepare();
    assert_eq!(thread.switched_out(), Left::Nothing);
    assert!(thread.wake());
    assert!(!thread.wake(), "it is on a queue already");
}

#[cfg(not(ebb_model))]
#[test]
fn the_new_are_started_by_their_maker_alone() {
    let thread = ThreadState::new(State::New);
    assert!(!thread.wake(), "only its maker has a count to give");
    assert_eq!(thread.get(), State::New);
    assert!(thread.start());
    assert!(!thread.start());
    assert!(!thread.wake(), "it is on a queue already");
    thread.picked();
    assert_eq!(thread.get(), State::Running);
}

#[cfg(not(ebb_model))]
#[test]
fn the_dead_stay_dead() {
    let thread = ThreadState::new(State::Running);
    thread.die();
    assert!(!thread.wake());
    assert_eq!(thread.switched_out(), Left::Bury);
}

#[cfg(ebb_model)]
mod model {
    use super::{Left, State, ThreadState};
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use loom::thread;

    struct Shared {
        state: ThreadState,
        condition: AtomicBool,
        /// Number of run queue entries of the thread, over all queues.
        queued: AtomicUsize,
    }

    /// A thread waits for a condition while another CPU makes it true and wakes the thread.
    /// Afterwards the thread either runs or is on exactly one queue.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                state: ThreadState::new(State::Running),
                condition: AtomicBool::new(false),
                queued: AtomicUsize::new(0),
            });
            let waker = thread::spawn({
                let shared = shared.clone();
                move || {
                    shared.condition.store(true, Ordering::Release);
                    if shared.state.wake() {
                        shared.queued.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            shared.state.prepare();
            let runs = if shared.condition.load(Ordering::Acquire) {
                shared.state.cancel();
                true
            } else {
                // The registers are saved here; then the CPU settles the state.
                if shared.state.switched_out() == Left::Enqueue {
                    shared.queued.fetch_add(1, Ordering::SeqCst);
                }
                false
            };
            waker.join().unwrap();
            let queued = shared.queued.load(Ordering::SeqCst);
            assert_eq!(
                queued + usize::from(runs),
                1,
                "runs {runs}, on {queued} queues"
            );
        });
    }

    /// Two concurrent wakers put a blocked thread on one queue.
    #[test]
    fn two_wakers_enqueue_once() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                state: ThreadState::new(State::Running),
                condition: AtomicBool::new(false),
                queued: AtomicUsize::new(0),
            });
            let wakers: [_; 2] = core::array::from_fn(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.condition.store(true, Ordering::Release);
                    if shared.state.wake() {
                        shared.queued.fetch_add(1, Ordering::SeqCst);
                    }
                })
            });
            shared.state.prepare();
            let mut runs = 0;
            if shared.condition.load(Ordering::Acquire) {
                shared.state.cancel();
                runs = 1;
            } else if shared.state.switched_out() == Left::Enqueue {
                shared.queued.fetch_add(1, Ordering::SeqCst);
            }
            for waker in wakers {
                waker.join().unwrap();
            }
            assert_eq!(shared.queued.load(Ordering::SeqCst) + runs, 1);
        });
    }
}
