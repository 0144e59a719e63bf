//! Futexes.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `futex(2)`.
pub fn futex(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `set_robust_list(2)`.
pub fn set_robust_list(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `get_robust_list(2)`.
pub fn get_robust_list(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
