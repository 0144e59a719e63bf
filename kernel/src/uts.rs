//! What the machine calls itself: the answers of `uname`, shared with `/proc/sys/kernel`.

use crate::errno::Errno;
use crate::sync::SpinLock;

/// The system whose calls are served.
pub const SYSNAME: &str = "Linux";
/// The Linux release that programs may expect the calls of, and this kernel's own version.
pub const RELEASE: &str = concat!("6.1.0-ebb-", env!("CARGO_PKG_VERSION"));
/// Build.
pub const VERSION: &str = "#1 SMP ebb";
/// Architecture.
pub const MACHINE: &str = "x86_64";
/// The longest host or domain name.
pub const NAME_MAX: usize = 64;

/// A host or domain name.
#[derive(Copy, Clone, Debug)]
pub struct Name {
    bytes: [u8; NAME_MAX],
    length: usize,
}

impl Name {
    const fn new(text: &[u8]) -> Self {
        let mut bytes = [0; NAME_MAX];
        let mut at = 0;
        while at < text.len() {
            bytes[at] = text[at];
            at += 1;
        }
        Self { bytes, length: text.len() }
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

static HOSTNAME: SpinLock<Name> = SpinLock::new(Name::new(b"ebb"));
static DOMAINNAME: SpinLock<Name> = SpinLock::new(Name::new(b"(none)"));

/// Host name.
pub fn hostname() -> Name {
    *HOSTNAME.lock()
}

/// Domain name.
pub fn domainname() -> Name {
    *DOMAINNAME.lock()
}

fn set(slot: &SpinLock<Name>, name: &[u8]) -> Result<(), Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::EINVAL);
    }
    *slot.lock() = Name::new(name);
    Ok(())
}

/// Sets the host name; `EINVAL` if it is too long.
pub fn set_hostname(name: &[u8]) -> Result<(), Errno> {
    set(&HOSTNAME, name)
}

/// Sets the domain name; `EINVAL` if it is too long.
pub fn set_domainname(name: &[u8]) -> Result<(), Errno> {
    set(&DOMAINNAME, name)
}
