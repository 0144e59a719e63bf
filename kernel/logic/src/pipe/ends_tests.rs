//! An opener of a FIFO meets its peer, however quickly that peer closes it again. All
//! interleavings: `cargo test -p ebb-kernel-logic-models --release model`.

use super::ends::Ends;

#[cfg(not(ebb_model))]
#[test]
fn a_peer_that_waited_and_went_was_met() {
    let ends = Ends::default();
    let writer = ends.look(false);
    ends.come(false, true);
    assert!(!ends.met(&writer));
    let reader = ends.look(true);
    ends.come(true, false);
    // The reader has not looked again yet, and the writer has finished already.
    assert!(ends.met(&writer));
    assert_eq!(ends.leave(false, true), (false, true));
    assert!(ends.met(&reader));
}

#[cfg(not(ebb_model))]
#[test]
fn a_peer_that_went_before_is_not_met() {
    let ends = Ends::default();
    ends.come(false, true);
    ends.leave(false, true);
    let reader = ends.look(true);
    ends.come(true, false);
    assert!(!ends.met(&reader));
    ends.come(false, true);
    ends.leave(false, true);
    assert!(ends.met(&reader));
}

#[cfg(ebb_model)]
mod model {
    use super::Ends;
    use loom::sync::Arc;
    use loom::thread;

    fn open_and_close(ends: &Ends, reads: bool) {
        let look = ends.look(reads);
        ends.come(reads, !reads);
        while !ends.met(&look) {
            thread::yield_now();
        }
        ends.leave(reads, !reads);
    }

    /// A reader and a writer open, meet and leave. Neither waits for ever, in any order.
    #[test]
    fn reader_and_writer_meet() {
        loom::model(|| {
            let ends = Arc::new(Ends::default());
            let writers = ends.clone();
            let writer = thread::spawn(move || open_and_close(&writers, false));
            open_and_close(&ends, true);
            writer.join().unwrap();
        });
    }
}
