//! An allocator that refuses at each point in turn.

use super::pool::Pool;
use super::simulated::{Refuse, Simulated};

type Machine = Simulated<8, 2>;

const FRAMES: usize = 6 * Machine::IN_GIANT;

/// Runs every operation on `pool` at least once. Returns whether a block carried its part of the
/// memmap at some point, and the number of pages whose part was shared, summed over all steps.
fn scenario(pool: &mut Pool<'_, 8, 2>) -> (bool, usize) {
    let mut carried = false;
    let mut gave_up = 0;
    let mut look = |pool: &Pool<'_, 8, 2>| {
        pool.check();
        carried |= pool.carries();
        gave_up += pool.shared_pages();
    };
    pool.add(2, 64);
    look(pool);
    pool.add(9, 8);
    look(pool);
    pool.give_back(2, 3, 0);
    look(pool);
    pool.give_back(2, 2, 40);
    look(pool);
    pool.relieve();
    look(pool);
    pool.demote(0);
    pool.give_back(4, 5, 5);
    look(pool);
    pool.fill(20);
    pool.give_back_giant(0);
    look(pool);
    pool.relieve();
    look(pool);
    pool.add(8, 8);
    look(pool);
    pool.give_back(0, 40, 40);
    look(pool);
    pool.relieve();
    look(pool);
    (carried, gave_up)
}

/// Runs [`scenario`] on a machine whose allocator refuses the calls in `refuse` and chooses frames
/// by `seed`. Returns how often it called the allocator, the results of [`scenario`], and whether
/// no block carries in the end.
fn run(refuse: Refuse, seed: u64) -> (u64, bool, usize, bool) {
    let machine = Machine::new(FRAMES, seed);
    let mut pool = Pool::new(&machine);
    machine.refuse(refuse);
    let (carried, gave_up) = scenario(&mut pool);
    let calls = machine.calls();
    pool.empty();
    (calls, carried, gave_up, !pool.carries())
}

/// A refused allocation may cost a page its saving, or a block some frames for a while, but never
/// loses a frame.
#[test]
fn an_allocator_may_refuse_at_each_point() {
    for seed in [0, 1, 77] {
        let (calls, carried, gave_up, _) = run(Refuse::None, seed);
        assert!(!carried && gave_up > 0);
        assert!(calls > 20, "{calls}");
        let (mut carried, mut relieved, mut kept) = (0, 0, 0);
        for call in 1..=calls {
            for refuse in [Refuse::One(call), Refuse::From(call)] {
                let (_, carries, gave, whole) = run(refuse, seed);
                carried += u64::from(carries);
                relieved += u64::from(carries && whole);
                kept += u64::from(gave < gave_up);
            }
        }
        let counts = [carried, relieved, kept];
        assert!(!counts.contains(&0), "{counts:?}");
    }
}
