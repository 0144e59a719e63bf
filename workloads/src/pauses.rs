//! Pauses of several processes at once: all of them wait until their parent has had its turn.

use crate::Failure;
use std::cell::Cell;
use std::io::{PipeReader, PipeWriter, Read, Write};

/// The function that a task calls to pause. It returns when the task may continue, and fails if the
/// wait fails.
pub(crate) type Pause<'a> = &'a dyn Fn() -> Result<(), Failure>;

/// The pauses that every task makes in the middle of its work.
pub(crate) struct Pauses<'a> {
    /// Number of pauses; 0 if tasks neither take turns nor wait for each other.
    pub(crate) count: u64,
    /// Waits until it is this program's turn again.
    pub(crate) turn: &'a mut dyn FnMut() -> Result<(), Failure>,
}

/// Two pipes between the parent and a child: the child reports that it pauses, and the parent tells
/// it to continue. The ends are in cells, since parent and children close the ends of the other
/// side. A process whose peer has died then gets an error and does not wait for ever.
struct PipePair {
    pausing: Cell<Option<PipeReader>>,
    pause: Cell<Option<PipeWriter>>,
    resumed: Cell<Option<PipeReader>>,
    resume: Cell<Option<PipeWriter>>,
}

/// The pipes between a parent and its children, two for each child, by which the children pause.
pub(crate) struct PipePairs(Vec<PipePair>);

impl PipePairs {
    /// Creates the pipes for `count` children. Fails with `System` if a pipe cannot be created.
    pub(crate) fn new(count: usize) -> Result<Self, Failure> {
        let pipe = || std::io::pipe().map_err(Failure::system("make a pipe"));
        let pairs = (0..count).map(|_| {
            let ((pausing, pause), (resumed, resume)) = (pipe()?, pipe()?);
            Ok(PipePair {
                pausing: Cell::new(Some(pausing)),
                pause: Cell::new(Some(pause)),
                resumed: Cell::new(Some(resumed)),
                resume: Cell::new(Some(resume)),
            })
        });
        Ok(Self(pairs.collect::<Result<_, Failure>>()?))
    }

    /// Returns the ends of the pipes of child `index`, counted from 0, and closes all other ends.
    /// Call it once, in the child. Panics if there is no such child.
    pub(crate) fn child_pipes(&self, index: usize) -> ChildPipes {
        let pair = &self.0[index];
        let pipes = ChildPipes(pair.pause.take().zip(pair.resumed.take()));
        for pair in &self.0 {
            drop((pair.pausing.take(), pair.pause.take()));
            drop((pair.resumed.take(), pair.resume.take()));
        }
        pipes
    }

    /// Serves all pauses, in the parent: waits until all children pause, calls `pauses.turn`, and
    /// lets them continue. Call it once, after the last fork; it closes the children's ends.
    /// Returns `Ok` early if a child has ended, whose result then tells the reason. Fails if
    /// `pauses.turn` fails.
    pub(crate) fn serve(&self, pauses: &mut Pauses<'_>) -> Result<(), Failure> {
        let mut ends = Vec::new();
        for pair in &self.0 {
            drop((pair.pause.take(), pair.resumed.take()));
            ends.extend(pair.pausing.take().zip(pair.resume.take()));
        }
        for _ in 0..pauses.count {
            for (pausing, _) in &mut ends {
                if pausing.read_exact(&mut [0]).is_err() {
                    return Ok(());
                }
            }
            (pauses.turn)()?;
            for (_, resume) in &mut ends {
                // A child that has ended is noticed at the next pause.
                let _ = resume.write_all(&[1]);
            }
        }
        Ok(())
    }
}

/// A child's ends of its two pipes to the parent.
pub(crate) struct ChildPipes(Option<(PipeWriter, PipeReader)>);

impl ChildPipes {
    /// Reports a pause to the parent and waits until it lets the child continue. Fails with
    /// `System` if the parent has ended or serves no more pauses.
    pub(crate) fn pause(&self) -> Result<(), Failure> {
        let (mut pause, mut resumed) = match &self.0 {
            Some((pause, resumed)) => (pause, resumed),
            None => return Ok(()),
        };
        pause
            .write_all(&[1])
            .and_then(|()| resumed.read_exact(&mut [0]))
            .map_err(Failure::system("wait for the next turn"))
    }
}
