//! Finds the guest that a user names.

use super::client::{Fleet, GuestId, Presence};
use super::protocol::Figures;
use crate::failure::Failure;
use crate::text::one_line;

/// The reason why no single guest matches what the user named.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotFound {
    #[error("no guest runs that answers; `ebb run -- PROGRAM` starts one")]
    None,
    #[error("no guest is called `{}`; `ebb top --once` lists them", one_line(.0))]
    Unknown(String),
    #[error(
        "several guests are meant; say which by --guest and its process number (PID in `ebb top --once --json`)"
    )]
    Several,
}

impl From<NotFound> for Failure {
    fn from(error: NotFound) -> Self {
        Self::Usage(error.to_string())
    }
}

impl Fleet {
    /// Asks all guests for their figures, and returns the process number of a run whose guest is
    /// called `name`. Returns `None` if no guest with that name answers in time.
    pub(crate) fn run_of(&mut self, name: &str) -> Option<u32> {
        let guests = self.figures().into_values();
        let mut pids = guests.filter_map(|presence| match presence {
            Presence::Here(figures) => (figures.name == name).then_some(figures.pid),
            Presence::Silent => None,
        });
        pids.next()
    }

    /// Asks all guests for their figures, and returns the guest whose name or process number of its
    /// run is `wanted`, with its figures. Without `wanted`, returns the only guest. If no guest
    /// matches, waits up to 10 s for guests that have not answered. Guests that do not answer do
    /// not count.
    ///
    /// # Errors
    /// `None` if no guest answers and `wanted` is `None`; `Unknown` if no guest is called `wanted`;
    /// `Several` if more than one guest matches.
    pub(crate) fn find(
        &mut self,
        wanted: Option<&str>,
    ) -> Result<(GuestId, Box<Figures>), NotFound> {
        let mut guests = self.matching(|figures| {
            wanted.is_none_or(|wanted| figures.name == wanted || figures.pid.to_string() == wanted)
        });
        match (guests.pop(), guests.is_empty(), wanted) {
            (Some(guest), true, _) => Ok(guest),
            (None, _, None) => Err(NotFound::None),
            (None, _, Some(wanted)) => Err(NotFound::Unknown(wanted.to_owned())),
            (Some(_), false, _) => Err(NotFound::Several),
        }
    }
}
