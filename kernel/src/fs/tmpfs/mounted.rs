//! Mounting a tmpfs, and its mount options.

use super::super::text::Text;
use super::super::volume::{FileSystem, FileSystemType, Made, Maker, MountFlags, Volume};
use super::{Limits, Tmpfs, ram_pages};
use alloc::sync::Arc;
use core::fmt::{Result as Written, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use logic::mount_options::TmpfsOptions;
use machine::memory::file_block::{SharedPolicy, SharedPolicyCell};

/// Permissions of a root directory, unless `mode=` says otherwise.
pub(super) const DEFAULT_MODE: u32 = 0o1777;

/// The type of the file system `tmpfs`.
pub const TYPE: FileSystemType = FileSystemType {
    name: "tmpfs",
    maker: Maker::Anew(make),
};

fn make(options: &[u8], flags: MountFlags) -> Result<Made, Errno> {
    let options = TmpfsOptions::parse(options, ram_pages())?;
    let usual = Limits::half_of_ram();
    let limits = Limits {
        pages: options.pages.unwrap_or(usual.pages),
        nodes: options.files.unwrap_or(usual.nodes),
    };
    let mode = options.mode.unwrap_or(DEFAULT_MODE);
    let owner = [options.uid.unwrap_or(0), options.gid.unwrap_or(0)];
    let fs = Arc::new(Tmpfs::new(Volume::new(flags)?, limits, mode, owner));
    fs.set_blocks(options.blocks)?;
    let top = fs.make_root(None, b"", mode);
    {
        let mut attributes = top.attributes.lock();
        [attributes.uid, attributes.gid] = owner;
    }
    Ok(Made { fs, top })
}

/// Returns the new limit `wanted` in place of `old`; `None` keeps that. Fails with `EINVAL` if more
/// than the limit is `used`, or if there was no limit and `wanted` is one.
fn new_limit(wanted: Option<u64>, old: &AtomicU64, used: &AtomicU64) -> Result<Option<u64>, Errno> {
    let Some(limit) = wanted else {
        return Ok(None);
    };
    let had_none = old.load(Ordering::Relaxed) == 0;
    if limit != 0 && (had_none || used.load(Ordering::Relaxed) > limit) {
        return Err(Errno::EINVAL);
    }
    Ok(wanted)
}

/// Returns the policy that a value of `huge=` names, or `None` without a value. Fails with `EINVAL`
/// for a name that mounts may not use (`deny`, `force`) and for an unknown one.
fn block_policy(value: Option<&[u8]>) -> Result<Option<SharedPolicy>, Errno> {
    let Some(value) = value else {
        return Ok(None);
    };
    match SharedPolicy::named(value) {
        None | Some(SharedPolicy::Deny | SharedPolicy::Force) => Err(Errno::EINVAL),
        known => Ok(known),
    }
}

impl Tmpfs {
    fn set_blocks(&self, value: Option<&[u8]>) -> Result<(), Errno> {
        if let (Some(policy), Some(own)) = (block_policy(value)?, &self.blocks) {
            own.set(policy);
        }
        Ok(())
    }
}

impl FileSystem for Tmpfs {
    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn reconfigure(&self, options: &[u8]) -> Result<(), Errno> {
        // As on Linux, the root directory stays as it is. Options such as `mode=` have no effect on
        // it.
        let options = TmpfsOptions::parse(options, ram_pages())?;
        block_policy(options.blocks)?;
        let pages = new_limit(options.pages, &self.page_limit, &self.pages)?;
        let nodes = new_limit(options.files, &self.node_limit, &self.nodes)?;
        for (limit, new) in [(&self.page_limit, pages), (&self.node_limit, nodes)] {
            if let Some(new) = new {
                // Relaxed: a page that is being charged may see either limit.
                limit.store(new, Ordering::Relaxed);
            }
        }
        self.set_blocks(options.blocks)
    }

    fn show_options(&self, text: &mut Text) -> Written {
        let usual = Limits::half_of_ram();
        let pages = self.page_limit.load(Ordering::Relaxed);
        let nodes = self.node_limit.load(Ordering::Relaxed);
        if pages != usual.pages {
            write!(text, ",size={}k", pages.saturating_mul(4))?;
        }
        if nodes != usual.nodes {
            write!(text, ",nr_inodes={nodes}")?;
        }
        if self.root_mode != DEFAULT_MODE {
            write!(text, ",mode={:03o}", self.root_mode)?;
        }
        for (name, id) in [",uid", ",gid"].into_iter().zip(self.root_owner) {
            if id != 0 {
                write!(text, "{name}={id}")?;
            }
        }
        match self.blocks.as_ref().map(SharedPolicyCell::get) {
            None | Some(SharedPolicy::Never) => Ok(()),
            Some(policy) => write!(text, ",huge={}", policy.name()),
        }
    }
}
