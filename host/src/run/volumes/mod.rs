//! `--volume`: folders of the host's that the guest reads and writes.
//!
//! The guest's kernel is whoever the program made it. It names files by handles that it was given, and asks for names in folders
//! one by one ([`ebb_wire::volume`]): no path, no link and no `..` is ever resolved for it.
//!
//! | file | what |
//! |---|---|
//! | `option` | what `--volume` says |
//! | `handles` | files that the guest knows |
//! | `facts` | what it is told of them |
//! | `entries` | names: looking, making, moving, removing |
//! | `listing` | a folder's names while they are listed |
//! | `content` | bytes |
//! | `quota` | how much may be added |
//! | `counting` | counts what requests add |
//! | `answers` | its requests, answered |

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
