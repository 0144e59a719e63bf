//! Confines the processes that handle what a guest, an image or a program says: QEMU, the readers of
//! images and programs, and `ebb` itself.
//!
//! | file | what |
//! |---|---|
//! | `measures` | the single measures, and which of them hold |
//! | `fork` | starts a process of this program that goes on with a function |
//! | `reader` | a process that may compute and answer, and nothing else |
//! | `limit` | the CPU time and the time of a reader for an answer |
//! | `frames` | messages between `ebb` and a reader |
//! | `namespaces` | the user, network and IPC namespaces of a QEMU |
//! | `kvm` | a `/dev/kvm` for it where only root may open the host's |
//! | `files` | the folders that QEMU may read (Landlock) |
//! | `calls` | the system calls that QEMU, and a reader, may make (seccomp) |
//! | `cage` | all of that for QEMU, put on between `fork` and `exec` |
//! | `tmpfs` | a tmpfs of `ebb`'s own, made in such namespaces where `ebb` is not root |
//! | `privileges` | the capabilities that `ebb` keeps |

mod cage;
mod calls;
mod files;
mod fork;
pub(crate) mod frames;
mod kvm;
mod limit;
mod measures;
mod namespaces;
mod privileges;
mod reader;
mod tmpfs;

pub(crate) use cage::{Cage, CageError, Needs, Preparation};
pub(crate) use calls::{HugePageAdvice, refuse_descriptors};
pub(crate) use limit::Limits;
pub(crate) use measures::Measure;
pub(crate) use privileges::{Privileges, keep, names};
pub(crate) use reader::{LIMITS, Reader};
pub(crate) use tmpfs::huge_tmpfs;
