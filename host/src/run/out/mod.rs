//! `--out GUESTPATH[:HOSTPATH]`: files of the guest, copied to the host when its program has ended.
//!
//! | file | what |
//! |---|---|
//! | `destination` | where they go: looked at before the guest starts |
//! | `receive` | what the guest sends, an archive that may be a lie ([`ebb_wire::out`]) |
//! | `parser` | the confined process that reads it |
//! | `collect` | what that process says, made |
//! | `budget` | how much of it is read |
//! | `tree` | the files, written beside their destination and moved there when all is here |

mod budget;
mod collect;
mod destination;
mod parser;
mod receive;
#[cfg(test)]
mod receive_tests;
mod tree;

use crate::confine::{LIMITS, Limits, Reader};
use crate::failure::Failure;
use crate::text::{Size, one_line};
use destination::Destination;
use ebb_wire::boot;
use ebb_wire::out::Note;
use receive::Fault;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use tree::Tree;

/// The most characters of what the guest says of a file that it did not send.
const WHY_MAX: usize = 1024;

/// What is to be copied, where to, and how much at most.
#[derive(Clone, Debug)]
pub(super) struct Outs {
    destinations: Arc<[Arc<Destination>]>,
    most: Size,
    /// Reads what the guest sends. It starts before the guest's memory is mapped here; `None` once it said
    /// something odd.
    reader: Arc<Mutex<Option<Reader>>>,
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// What is not where it should be.
    pub(super) failure: Option<Failure>,
    /// What else is worth a word.
    pub(super) remarks: Vec<String>,
}

impl Outs {
    /// Of the arguments of `--out`, if there are any; looks at the destinations.
    pub(super) fn new(arguments: &[OsString], most: Size) -> Result<Option<Self>, Failure> {
        let destinations = destination::all(arguments).map_err(Failure::Usage)?;
        if destinations.is_empty() {
            return Ok(None);
        }
        // What it waits for is the guest's to send.
        let limits = Limits {
            clock: None,
            ..LIMITS
        };
        let reader = Reader::start(c"ebb-out", limits, parser::serve);
        let reader = reader.map_err(Failure::setup("the process that reads for --out"))?;
        Ok(Some(Self {
            destinations: destinations.into(),
            most,
            reader: Arc::new(Mutex::new(Some(reader))),
        }))
    }

    /// Returns whether a copy goes to a folder of another user than root.
    pub(super) fn go_to_others(&self) -> bool {
        let mut destinations = self.destinations.iter();
        destinations.any(|one| one.belongs_to_another())
    }

    /// The words for the guest ([`boot::OUT`]).
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words = vec![
            OsString::from(boot::INIT),
            boot::OUT_WORD.into(),
            self.most.bytes().to_string().into(),
        ];
        let paths = self.destinations.iter();
        words.extend(paths.map(|one| OsString::from_vec(one.guest.as_bytes().to_vec())));
        words
    }

    /// Takes what the guest sends until it ends. `end` ends it, where it sends without one.
    pub(super) fn receive(&self, port: UnixStream, end: impl FnOnce()) -> Copied {
        let destinations = self.destinations.iter();
        let mut trees: Vec<_> = destinations.map(|one| Tree::new(Arc::clone(one))).collect();
        let result = self.collect(&port, &mut trees);
        if !receive::drain(port, self.most) {
            end();
        }
        self.settle(trees, result)
    }

    fn collect(&self, port: &UnixStream, trees: &mut [Tree]) -> Result<String, Fault> {
        let mut kept = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = kept.take();
        let reader = reader.ok_or_else(|| Fault::Said("its reader has ended".into()))?;
        let result = collect::collect(&reader, port, trees, self.most);
        // One that was left in the middle of an entry is not asked again.
        if matches!(result, Ok(_) | Err(Fault::Told(_))) {
            *kept = Some(reader);
        }
        result
    }

    fn settle(&self, trees: Vec<Tree>, result: Result<String, Fault>) -> Copied {
        let (notes, fault) = match result {
            Ok(notes) => (notes, None),
            Err(fault) => (String::new(), Some(fault.to_string())),
        };
        let notes: Vec<_> = notes.lines().filter_map(Note::parse).collect();
        let mut copied = Copied::default();
        let mut lines = Vec::new();
        for (number, tree) in trees.into_iter().enumerate() {
            let what = format!("--out {}", self.destinations[number].guest);
            let mut missing: Vec<_> = notes
                .iter()
                .filter_map(|note| self.shortfall(note, number))
                .collect();
            missing.extend(fault.clone());
            if missing.is_empty() && !tree.has_begun() {
                missing.push("the guest did not send it".into());
            }
            if missing.is_empty() {
                if let Err(why) = tree.settle() {
                    lines.push(format!("{what}: {why}"));
                }
            } else {
                let why = missing.join("; ");
                lines.push(match tree.partial() {
                    Some(path) => format!("{what}: incomplete, in {}: {why}", one_line(&path)),
                    None => format!("{what}: not copied: {why}"),
                });
            }
            copied
                .remarks
                .extend(notes.iter().filter_map(|note| match note {
                    Note::LeftOut(of, what) if *of == number => {
                        Some(format!("--out: left out {}", one_line(what).up_to(WHY_MAX)))
                    }
                    _ => None,
                }));
        }
        copied
            .remarks
            .extend(notes.iter().filter_map(|note| match note {
                Note::More(_, left_out) if *left_out > 0 => {
                    Some(format!("--out: left out {left_out} more"))
                }
                _ => None,
            }));
        copied.failure = (!lines.is_empty()).then_some(Failure::Out { lines });
        copied
    }

    /// Why the copy of this number is not whole, by a note.
    fn shortfall(&self, note: &Note<'_>, number: usize) -> Option<String> {
        match note {
            Note::Missing(of, why) | Note::Unread(of, why) if *of == number => {
                Some(one_line(why).up_to(WHY_MAX).to_string())
            }
            Note::Over(of) if *of <= number => {
                Some(format!("there is more than {} (--out-max)", self.most))
            }
            Note::More(unread, _) if *unread > 0 => {
                Some(format!("{unread} more could not be read"))
            }
            _ => None,
        }
    }
}
