//! The task state's protocol: no wake-up is lost, and no task runs twice.
//! All interleavings: `RUSTFLAGS="--cfg loom" cargo test -p ebb-kernel --release --lib model`.

use super::state::{Left, State, TaskState};

#[cfg(not(loom))]
#[test]
fn a_wake_before_the_switch_is_kept() {
    let task = TaskState::new(State::Running);
    task.prepare();
    assert!(task.is_parking());
    assert!(!task.wake(), "its own CPU puts it back");
    assert!(!task.is_parking());
    assert_eq!(task.switched_out(), Left::Enqueue);
    task.picked();
    assert_eq!(task.get(), State::Running);
}

#[cfg(not(loom))]
#[test]
fn a_blocked_task_is_woken_once() {
    let task = TaskState::new(State::Running);
    task.prepare();
    assert_eq!(task.switched_out(), Left::Nothing);
    assert!(task.wake());
    assert!(!task.wake(), "it is on a queue already");
}

#[cfg(not(loom))]
#[test]
fn the_dead_stay_dead() {
    let task = TaskState::new(State::Running);
    task.die();
    assert!(!task.wake());
    assert_eq!(task.switched_out(), Left::Bury);
}

#[cfg(loom)]
mod model {
    use super::{Left, State, TaskState};
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use loom::thread;

    struct Shared {
        state: TaskState,
        condition: AtomicBool,
        /// Run queues that the task is on, all together.
        queued: AtomicUsize,
    }

    /// A task waits for a condition while another CPU makes it true and wakes: afterwards the task
    /// either runs or is on exactly one queue.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                state: TaskState::new(State::Running),
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
                // Saved whole here; then the CPU settles the state.
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

    /// Two wakers at once put a blocked task on one queue.
    #[test]
    fn two_wakers_enqueue_once() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                state: TaskState::new(State::Running),
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
