//! The names of the machine and of the kernel that `uname(2)` shows.

use crate::fs::changes::Changes;
use machine::sync::SpinLock;

/// The size in bytes of one field of `struct utsname`, with its NUL.
pub(crate) const FIELD: usize = 65;

/// The version of Linux whose interface this kernel offers (`uname -r`).
pub const RELEASE: &str = "6.1.0-ebb";
/// The version of the kernel build that `uname -v` shows.
pub const VERSION: &str = "#1 SMP Ebb";

/// A name in `struct utsname`, padded with NULs.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Field(pub(crate) [u8; FIELD]);

impl Field {
    /// Returns a field with `text`, cut to 64 bytes.
    pub(crate) const fn new(text: &str) -> Self {
        let mut bytes = [0; FIELD];
        let mut i = 0;
        while i < text.len() && i < FIELD - 1 {
            bytes[i] = text.as_bytes()[i];
            i += 1;
        }
        Self(bytes)
    }
}

/// The machine's host name (`sethostname(2)`).
pub(crate) static HOST_NAME: SpinLock<Field> = SpinLock::new(Field::new("ebb"));
/// The machine's NIS domain name (`setdomainname(2)`).
pub(crate) static DOMAIN_NAME: SpinLock<Field> = SpinLock::new(Field::new("(none)"));

/// The changes of the host name, for tasks that poll `/proc/sys/kernel/hostname`.
pub static HOST_CHANGES: Changes = Changes::new();
/// The changes of the NIS domain name, for tasks that poll `/proc/sys/kernel/domainname`.
pub static DOMAIN_CHANGES: Changes = Changes::new();

fn with_name<R>(slot: &SpinLock<Field>, read: impl FnOnce(&[u8]) -> R) -> R {
    let name = slot.lock().0;
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(FIELD);
    read(&name[..len])
}

fn set_name(slot: &SpinLock<Field>, name: &[u8]) {
    let mut field = Field([0; FIELD]);
    let len = name.len().min(FIELD - 1);
    field.0[..len].copy_from_slice(&name[..len]);
    *slot.lock() = field;
}

/// Calls `read` with the host name, without NULs, and returns the result of `read`.
pub fn with_host_name<R>(read: impl FnOnce(&[u8]) -> R) -> R {
    with_name(&HOST_NAME, read)
}

/// Sets the host name to `name`, cut to 64 bytes.
pub fn set_host_name(name: &[u8]) {
    set_name(&HOST_NAME, name);
    HOST_CHANGES.note();
}

/// Calls `read` with the NIS domain name, without NULs, and returns the result of `read`.
pub fn with_domain_name<R>(read: impl FnOnce(&[u8]) -> R) -> R {
    with_name(&DOMAIN_NAME, read)
}

/// Sets the NIS domain name to `name`, cut to 64 bytes.
pub fn set_domain_name(name: &[u8]) {
    set_name(&DOMAIN_NAME, name);
    DOMAIN_CHANGES.note();
}
