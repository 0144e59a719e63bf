//! The option `--volume`: directories of the host that the guest reads and writes.
//!
//! The program may have taken over the guest's kernel. So the guest names files only by handles
//! that it was given, and looks up one name at a time in a directory ([`ebb_wire::volume`]). The
//! host never resolves a path, a link or `..` for it.
//!
//! | file | what |
//! |---|---|
//! | `option` | parses the option |
//! | `handles` | [`Volumes`]: the directories, and the handles that the guest has |
//! | `facts` | reads and changes attributes of files |
//! | `entries` | works on names: look up, create, list, rename, remove |
//! | `listing` | a directory that is being listed |
//! | `content` | reads and writes bytes |
//! | `quota` | limits of volumes (`max=`) |
//! | `counting` | counts what requests add to volumes |
//! | `answers` | answers the guest's requests |

mod answers;
mod content;
mod counting;
mod entries;
mod facts;
mod handles;
mod listing;
mod option;
mod quota;
#[cfg(test)]
mod tests;

pub(super) use handles::Volumes;
pub(super) use option::VolumeOption;
