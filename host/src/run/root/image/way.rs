//! A way through an image: parts of a path, and of the targets of links on it.

use super::nodes::{Id, ROOT};

/// Links on one way.
const LINKS_MAX: usize = 40;
/// The longest name.
pub(super) const NAME_MAX: usize = 255;
/// Steps on one way, the targets of links on it included. A part of a path is one step, and one
/// more for each [`STEP_BYTES`] of its name. A path of 4095 bytes with 256 folders has fewer.
pub(super) const WAY_STEPS_MAX: u32 = 1024;
const STEP_BYTES: usize = 32;

/// Why a way leads nowhere.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    Nothing,
    NoFolder,
    TooManyLinks,
    /// It has more than [`WAY_STEPS_MAX`] steps.
    TooLong,
    /// A name on it has more than [`NAME_MAX`] bytes.
    LongName,
}

/// What is left of the path, or of a target among all targets.
#[derive(Copy, Clone)]
struct Rest {
    in_targets: bool,
    from: usize,
    end: usize,
}

/// A way that is being gone.
pub(super) struct Way<'a> {
    path: &'a [u8],
    /// What is left; the next part is in the last one.
    rests: Vec<Rest>,
    links: usize,
    pub(super) steps: u32,
}

impl<'a> Way<'a> {
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

    /// Returns the bytes before the next slash of the last rest, `None` if there is no rest.
    fn peek<'b>(&self, targets: &'b [u8]) -> Result<Option<&'b [u8]>, Lost>
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
            None if text.len() > NAME_MAX => Err(Lost::LongName),
            _ => Ok(Some(&text[..end.unwrap_or(text.len())])),
        }
    }

    /// Passes a part that has `bytes`, and the slash behind it.
    fn pass(&mut self, bytes: usize) -> Result<(), Lost> {
        let steps = 1 + bytes / STEP_BYTES;
        self.steps += u32::try_from(steps).unwrap_or(WAY_STEPS_MAX);
        if self.steps > WAY_STEPS_MAX {
            return Err(Lost::TooLong);
        }
        if let Some(rest) = self.rests.last_mut() {
            rest.from += bytes + 1;
            if rest.from >= rest.end {
                self.rests.pop();
            }
        }
        Ok(())
    }

    /// Returns whether no part is left. Passes what stands for the folder itself. `targets` are
    /// those of all links.
    pub(super) fn is_at_end(&mut self, targets: &[u8]) -> Result<bool, Lost> {
        // Ends: each turn is a step.
        while let Some(part) = self.peek(targets)? {
            if !matches!(part, b"" | b".") {
                return Ok(false);
            }
            let bytes = part.len();
            self.pass(bytes)?;
        }
        Ok(true)
    }

    /// Takes the next part, `None` at the end.
    pub(super) fn next<'b>(&mut self, targets: &'b [u8]) -> Result<Option<&'b [u8]>, Lost>
    where
        'a: 'b,
    {
        // Ends: each turn is a step.
        while let Some(part) = self.peek(targets)? {
            self.pass(part.len())?;
            if !matches!(part, b"" | b".") {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    /// Follows a link in the folder `at`, whose target stands at `from` among all targets. Returns
    /// the folder in which it begins.
    pub(super) fn follow(&mut self, at: Id, (from, target): (usize, &[u8])) -> Result<Id, Lost> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Lost::TooManyLinks);
        }
        self.rests.push(Rest {
            in_targets: true,
            from,
            end: from + target.len(),
        });
        Ok(if target.starts_with(b"/") { ROOT } else { at })
    }
}
