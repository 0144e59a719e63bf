//! Path resolution in an image. A walk goes over the components of a path, and of the targets of
//! links on it.

use super::nodes::{Id, ROOT};

/// The most symbolic links that one walk follows.
const LINKS_MAX: usize = 40;
/// The most bytes of one component of a path.
pub(super) const NAME_MAX: usize = 255;
/// The most steps of one walk, targets of links included.
///
/// A component is one step, and one more for each [`STEP_BYTES`] of its name. A path of 4095 bytes
/// with 256 components has fewer steps.
pub(super) const WALK_STEPS_MAX: u32 = 1024;
const STEP_BYTES: usize = 32;

/// Why a path could not be resolved in an image.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum WalkError {
    /// A component does not exist.
    Nothing,
    /// A component that is not the last one is no directory.
    NotADirectory,
    /// The walk follows more than [`LINKS_MAX`] links.
    TooManyLinks,
    /// The walk has more than [`WALK_STEPS_MAX`] steps.
    TooLong,
    /// A component has more than [`NAME_MAX`] bytes.
    LongName,
}

/// A range of bytes that is still to be walked: in the path, or in the targets of all links.
#[derive(Copy, Clone)]
struct Rest {
    in_targets: bool,
    from: usize,
    end: usize,
}

/// The state of resolving one path: the components that are left, and the links and steps so far.
pub(super) struct PathWalk<'a> {
    path: &'a [u8],
    /// The ranges that are left. The next component is in the last one.
    rests: Vec<Rest>,
    links: usize,
    /// Number of steps so far.
    pub(super) steps: u32,
}

impl<'a> PathWalk<'a> {
    /// Begins to resolve `path` at its first component.
    pub(super) fn of(path: &'a [u8]) -> Self {
        let rest = Rest {
            in_targets: false,
            from: 0,
            end: path.len(),
        };
        Self {
            path,
            rests: vec![rest],
            links: 0,
            steps: 0,
        }
    }

    /// Returns the bytes before the next slash of the last range. Returns `None` if no range is
    /// left.
    fn peek<'b>(&self, targets: &'b [u8]) -> Result<Option<&'b [u8]>, WalkError>
    where
        'a: 'b,
    {
        let Some(rest) = self.rests.last() else {
            return Ok(None);
        };
        let text = if rest.in_targets { targets } else { self.path };
        let text = &text[rest.from..rest.end];
        let end = text.iter().take(NAME_MAX + 1).position(|b| *b == b'/');
        match end {
            None if text.len() > NAME_MAX => Err(WalkError::LongName),
            _ => Ok(Some(&text[..end.unwrap_or(text.len())])),
        }
    }

    /// Moves past a component of `bytes` bytes and the slash behind it. Fails if the walk has too
    /// many steps.
    fn pass(&mut self, bytes: usize) -> Result<(), WalkError> {
        let steps = 1 + bytes / STEP_BYTES;
        self.steps += u32::try_from(steps).unwrap_or(WALK_STEPS_MAX);
        if self.steps > WALK_STEPS_MAX {
            return Err(WalkError::TooLong);
        }
        if let Some(rest) = self.rests.last_mut() {
            rest.from += bytes + 1;
            if rest.from >= rest.end {
                self.rests.pop();
            }
        }
        Ok(())
    }

    /// Moves past empty components and `.`, and returns whether no component is left. `targets` are
    /// the targets of all links, one behind the other.
    ///
    /// # Errors
    /// Fails with [`WalkError::LongName`] if the next component is too long, and with
    /// [`WalkError::TooLong`] if there were too many steps.
    pub(super) fn is_at_end(&mut self, targets: &[u8]) -> Result<bool, WalkError> {
        // Ends, because each iteration is a step.
        while let Some(part) = self.peek(targets)? {
            if !matches!(part, b"" | b".") {
                return Ok(false);
            }
            let bytes = part.len();
            self.pass(bytes)?;
        }
        Ok(true)
    }

    /// Returns the next component other than empty ones and `.`, and moves past it. Returns `None`
    /// at the end. `targets` are the targets of all links, one behind the other.
    ///
    /// # Errors
    /// Fails with [`WalkError::LongName`] if the component is too long, and with
    /// [`WalkError::TooLong`] if there were too many steps.
    pub(super) fn next<'b>(&mut self, targets: &'b [u8]) -> Result<Option<&'b [u8]>, WalkError>
    where
        'a: 'b,
    {
        // Ends, because each iteration is a step.
        while let Some(part) = self.peek(targets)? {
            self.pass(part.len())?;
            if !matches!(part, b"" | b".") {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    /// Inserts the target of a link, found in the directory `at`, before the components that are
    /// left. `from` is the target's byte offset in the targets of all links. Returns the directory
    /// in which the target starts: the root if it is absolute, otherwise `at`.
    ///
    /// # Errors
    /// Fails with [`WalkError::TooManyLinks`] at the 41st link.
    pub(super) fn follow(
        &mut self,
        at: Id,
        (from, target): (usize, &[u8]),
    ) -> Result<Id, WalkError> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(WalkError::TooManyLinks);
        }
        self.rests.push(Rest {
            in_targets: true,
            from,
            end: from + target.len(),
        });
        Ok(if target.starts_with(b"/") { ROOT } else { at })
    }
}
