//! Confines the processes that handle untrusted data from a guest, an image or a program: QEMU, the
//! readers of images and programs, and `ebb` itself.
//!
//! | file | what |
//! |---|---|
//! | `measures` | the names of the single measures |
//! | `fork` | forks a process that runs a function of this program |
//! | `reader` | a process that may only compute and answer |
//! | `limit` | the limits of CPU time and wall-clock time for an answer of a reader |
//! | `frames` | messages between `ebb` and a reader |
//! | `namespaces` | the user, network and IPC namespaces of a QEMU |
//! | `kvm` | a `/dev/kvm` for QEMU where only root may open the host's |
//! | `files` | the folders that QEMU may read (Landlock) |
//! | `calls` | the system calls that QEMU, and a reader, may make (seccomp) |
//! | `sandbox` | all measures for QEMU, applied between `fork` and `exec` |
//! | `tmpfs` | a tmpfs of `ebb`'s own, made in such namespaces where `ebb` is not root |
//! | `privileges` | the capabilities that `ebb` keeps |

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
mod sandbox;
mod tmpfs;

pub(crate) use calls::{HugePageAdvice, refuse_descriptors};
pub(crate) use limit::Limits;
pub(crate) use measures::Measure;
pub(crate) use privileges::{Privileges, keep, names};
pub(crate) use reader::{LIMITS, Reader};
pub(crate) use sandbox::{Needs, Preparation, QemuSandbox, SandboxError};
pub(crate) use tmpfs::huge_tmpfs;
