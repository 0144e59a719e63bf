//! The option `--out GUESTPATH[:HOSTPATH]`: copies files of the guest to the host when its program
//! has ended.
//!
//! The guest sends a tar archive, which is untrusted ([`ebb_wire::out`]). [`Outs`] holds the
//! destinations and receives it.
//!
//! | file | what |
//! |---|---|
//! | `destination` | finds and checks the destinations before the guest starts |
//! | `receive` | reads the entries of the archive |
//! | `parser` | the confined process that reads the archive |
//! | `collect` | makes the entries that this process names |
//! | `budget` | limits the bytes that are read |
//! | `tree` | writes files under a temporary name, and renames them when all are complete |

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
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tree::Tree;

/// The most characters that are shown of the guest's reason for not sending a file.
const WHY_MAX: usize = 1024;

/// The destinations of all `--out` options, the limit for their copies, and the confined process
/// that parses the guest's archive. Clones share that process.
#[derive(Clone, Debug)]
pub(super) struct Outs {
    destinations: Arc<[Arc<Destination>]>,
    /// The most bytes that the copies may take together.
    most: Size,
    /// The process that reads the archive. It starts before the guest's memory is mapped here.
    /// `None` after an error that may have left it in the middle of an entry.
    reader: Arc<Mutex<Option<Reader>>>,
}

/// The result of receiving the files of `--out`: a failure, and remarks for the user.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// The copies that are missing or incomplete. `None` if all arrived.
    pub(super) failure: Option<Failure>,
    /// Remarks for the user, such as files that were left out.
    pub(super) remarks: Vec<String>,
}

impl Outs {
    /// Parses the `arguments` of all `--out` options, checks the destinations, and starts the
    /// confined process that will read the guest's archive. `most` limits the size of all copies
    /// together. Returns `None` without arguments.
    ///
    /// # Errors
    /// Fails with a usage error if an argument is malformed, or if a destination cannot be written
    /// or overlaps with another one. Fails with a setup error if the process cannot be started.
    pub(super) fn new(arguments: &[OsString], most: Size) -> Result<Option<Self>, Failure> {
        let destinations = destination::all(arguments).map_err(Failure::Usage)?;
        if destinations.is_empty() {
            return Ok(None);
        }
        // The reader waits for the guest without a time limit.
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

    /// Returns whether the directory of a destination belongs to another user than root. Returns
    /// `true` if one cannot be examined.
    pub(super) fn go_to_others(&self) -> bool {
        let mut destinations = self.destinations.iter();
        destinations.any(|one| one.belongs_to_another())
    }

    /// Returns the paths on the host of all copies.
    pub(super) fn host_paths(&self) -> impl Iterator<Item = &Path> {
        self.destinations.iter().map(|one| one.path.as_path())
    }

    /// Returns the command line by which the guest's program sends the files ([`boot::OUT`]): the
    /// program, its command, the limit in bytes, and the guest's paths.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words = vec![
            OsString::from(boot::INIT),
            boot::OUT_COMMAND.into(),
            self.most.bytes().to_string().into(),
        ];
        let paths = self.destinations.iter();
        words.extend(paths.map(|one| OsString::from_vec(one.guest.as_bytes().to_vec())));
        words
    }

    /// Receives the guest's archive on `port`, and renames complete copies to their destinations.
    /// Blocks until the guest closes `port`. Incomplete copies stay under their temporary names.
    ///
    /// Calls `end` if the guest sends more than twice the limit behind an archive that has ended or
    /// failed. `end` has to end the guest. All failures are in the result.
    pub(super) fn receive(&self, port: UnixStream, end: impl FnOnce()) -> Copied {
        let destinations = self.destinations.iter();
        let mut trees: Vec<_> = destinations.map(|one| Tree::new(Arc::clone(one))).collect();
        let result = self.collect(&port, &mut trees);
        if !receive::drain(port, self.most) {
            end();
        }
        self.commit(trees, result)
    }

    fn collect(&self, port: &UnixStream, trees: &mut [Tree]) -> Result<String, Fault> {
        let mut kept = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = kept.take();
        let reader = reader.ok_or_else(|| Fault::Said("its reader has ended".into()))?;
        let result = collect::collect(&reader, port, trees, self.most);
        // After another error the reader may be in the middle of an entry, so it is dropped.
        if matches!(result, Ok(_) | Err(Fault::Told(_))) {
            *kept = Some(reader);
        }
        result
    }

    fn commit(&self, trees: Vec<Tree>, result: Result<String, Fault>) -> Copied {
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
                if let Err(why) = tree.commit() {
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

    /// Returns why the copy with this number is incomplete, by one note of the guest. Returns
    /// `None` if the note is about another copy.
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
