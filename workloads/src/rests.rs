//! Rests of several processes at once: all of them wait until their parent has had its turn.

use crate::Failure;
use std::cell::Cell;
use std::io::{PipeReader, PipeWriter, Read, Write};

/// The function that a task calls to rest.
pub(crate) type Rest<'a> = &'a dyn Fn() -> Result<(), Failure>;

/// The rests that every task makes.
pub(crate) struct Rests<'a> {
    /// Number of rests; 0 if the program does not take turns.
    pub(crate) count: u64,
    /// Waits until it is this program's turn again.
    pub(crate) turn: &'a mut dyn FnMut() -> Result<(), Failure>,
}

/// Two pipes between the parent and a child: the child reports that it rests, and the parent tells
/// it to continue. The ends are in cells, since parent and children close the ends of the other
/// side. A process whose peer has died then gets an error and does not wait for ever.
struct Line {
    resting: Cell<Option<PipeReader>>,
    rest: Cell<Option<PipeWriter>>,
    told: Cell<Option<PipeReader>>,
    tell: Cell<Option<PipeWriter>>,
}

/// The pipes between a parent and its children.
pub(crate) struct Lines(Vec<Line>);

impl Lines {
    /// Creates the pipes for `count` children.
    pub(crate) fn new(count: usize) -> Result<Self, Failure> {
        let pipe = || std::io::pipe().map_err(Failure::system("make a pipe"));
        let lines = (0..count).map(|_| {
            let ((resting, rest), (told, tell)) = (pipe()?, pipe()?);
            Ok(Line {
                resting: Cell::new(Some(resting)),
                rest: Cell::new(Some(rest)),
                told: Cell::new(Some(told)),
                tell: Cell::new(Some(tell)),
            })
        });
        Ok(Self(lines.collect::<Result<_, Failure>>()?))
    }

    /// Returns the ends of child `index` and closes all others. Call it once, in the child.
    pub(crate) fn end_of(&self, index: usize) -> End {
        let line = &self.0[index];
        let end = End(line.rest.take().zip(line.told.take()));
        for line in &self.0 {
            drop((line.resting.take(), line.rest.take()));
            drop((line.told.take(), line.tell.take()));
        }
        end
    }

    /// Waits until all children rest, takes the parent's turn and lets them continue, for every
    /// rest. Call it in the parent. Returns early if a child has ended, whose result then tells the
    /// reason.
    pub(crate) fn serve(&self, rests: &mut Rests<'_>) -> Result<(), Failure> {
        let mut ends = Vec::new();
        for line in &self.0 {
            drop((line.rest.take(), line.told.take()));
            ends.extend(line.resting.take().zip(line.tell.take()));
        }
        for _ in 0..rests.count {
            for (resting, _) in &mut ends {
                if resting.read_exact(&mut [0]).is_err() {
                    return Ok(());
                }
            }
            (rests.turn)()?;
            for (_, tell) in &mut ends {
                // A child that has ended is noticed at the next rest.
                let _ = tell.write_all(&[1]);
            }
        }
        Ok(())
    }
}

/// A child's ends of its pipes.
pub(crate) struct End(Option<(PipeWriter, PipeReader)>);

impl End {
    /// Reports a rest and waits until the parent lets the child continue. Fails if the parent has
    /// ended.
    pub(crate) fn rest(&self) -> Result<(), Failure> {
        let (mut rest, mut told) = match &self.0 {
            Some((rest, told)) => (rest, told),
            None => return Ok(()),
        };
        rest.write_all(&[1])
            .and_then(|()| told.read_exact(&mut [0]))
            .map_err(Failure::system("wait for the next turn"))
    }
}
