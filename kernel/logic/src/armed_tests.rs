//! A timer that is set during a look that finds none is not forgotten.
//! All interleavings: `cargo test -p ebb-kernel-logic-models --release model`.

use super::armed::Armed;

#[cfg(not(ebb_model))]
#[test]
fn a_look_that_found_nothing_disarms_unless_it_was_armed_meanwhile() {
    let armed = Armed::new();
    assert!(!armed.is_armed());
    armed.arm();
    let look = armed.look();
    armed.arm();
    assert!(
        !armed.disarm(look),
        "the second timer may not have been seen"
    );
    assert!(armed.is_armed());
    assert!(armed.disarm(armed.look()));
    assert!(!armed.is_armed());
    let look = armed.look();
    armed.arm();
    assert!(!armed.disarm(look), "it was armed since the look began");
    assert!(armed.is_armed());
}

#[cfg(ebb_model)]
mod model {
    use super::Armed;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;

    /// One thread sets a timer while another looks. In the end the timer is set and the flag armed.
    #[test]
    fn a_timer_that_is_set_during_a_look_stays_armed() {
        loom::model(|| {
            let shared = Arc::new((Armed::new(), AtomicBool::new(false)));
            shared.0.arm();
            let other = shared.clone();
            let setter = thread::spawn(move || {
                // Relaxed: `arm` publishes it.
                other.1.store(true, Ordering::Relaxed);
                other.0.arm();
            });
            let look = shared.0.look();
            if !shared.1.load(Ordering::Relaxed) {
                shared.0.disarm(look);
            }
            setter.join().unwrap();
            assert!(shared.0.is_armed());
        });
    }
}
