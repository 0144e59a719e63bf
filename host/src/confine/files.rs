//! The files that QEMU may open by a path: its own program, libraries and firmware, for reading.
//! Everything else it is handed by descriptor.

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Where programs, libraries and firmware are.
const READ: [&str; 7] = [
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/sys/devices/system",
    "/dev/urandom",
];
/// What it writes, too.
const WRITTEN: [&str; 2] = ["/dev/null", "/dev/kvm"];
/// Folders of firmware and libraries that lie beside the folder of a program.
const BESIDE: [&str; 5] = ["share", "lib", "lib64", "pc-bios", "qemu-bundle"];
/// Folders at the top that hold what is no program.
const PERSONAL: [&str; 8] = ["home", "root", "tmp", "var", "run", "srv", "mnt", "media"];

/// A rule that lets a process open what QEMU needs, in `program`'s folders, too, and nothing else. `kvm` is
/// the `/dev/kvm` that it finds, if that is not the host's.
///
/// # Errors
/// If the kernel has no Landlock, or it is off.
pub(super) fn rule(program: &Path, kvm: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let abi = ABI::V3;
    // No signals to processes outside, and no abstract sockets of theirs.
    let scopes = Scope::from_all(ABI::V6);
    let read = AccessFs::from_read(abi);
    let failed = |error: RulesetError| io::Error::other(error);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .map_err(failed)?
        .scope(scopes)
        .map_err(failed)?
        .create()
        .map_err(failed)?;
    let own = folders_of(program).into_iter();
    let paths = READ.iter().map(|path| (PathBuf::from(path), read));
    let paths = paths.chain(own.map(|folder| (folder, read)));
    let written = AccessFs::ReadFile | AccessFs::WriteFile;
    let paths = paths.chain(WRITTEN.iter().map(|path| (PathBuf::from(path), written)));
    for (path, access) in paths {
        // What this host does not have needs no rule.
        let Ok(file) = PathFd::new(&path) else {
            continue;
        };
        let access = if path.is_dir() {
            access
        } else {
            access & AccessFs::from_file(abi)
        };
        rules = rules
            .add_rule(PathBeneath::new(file, access))
            .map_err(failed)?;
    }
    if let Some(kvm) = kvm {
        rules = rules
            .add_rule(PathBeneath::new(kvm, written))
            .map_err(failed)?;
    }
    let rule: Option<OwnedFd> = rules.into();
    rule.ok_or_else(|| io::Error::other("this kernel has no Landlock, or it is off"))
}

/// Puts a rule on the calling thread. Allocates nothing.
///
/// # Errors
/// The kernel's.
pub(super) fn apply(rule: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: numbers alone; the rule restricts the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rule.as_raw_fd(), 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The folders of a program that is installed outside the system's: all of `/nix`, or the program's
/// own folder and those beside it that hold firmware and libraries.
fn folders_of(program: &Path) -> Vec<PathBuf> {
    let Ok(real) = program.canonicalize() else {
        return Vec::new();
    };
    if READ.iter().any(|folder| real.starts_with(folder)) {
        return Vec::new();
    }
    let top = real.components().nth(1);
    let (Some(Component::Normal(top)), Some(own)) = (top, real.parent()) else {
        return Vec::new();
    };
    if !PERSONAL.iter().any(|folder| OsStr::new(folder) == top) {
        return vec![Path::new("/").join(top)];
    }
    let beside = own.parent().into_iter();
    let beside = beside.flat_map(|above| BESIDE.iter().map(move |name| above.join(name)));
    [own.to_owned()].into_iter().chain(beside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_system_need_no_folder_of_their_own() {
        assert!(folders_of(Path::new("/bin/sh")).is_empty());
        assert!(folders_of(Path::new("/no/such/program")).is_empty());
    }

    #[test]
    fn a_program_in_a_personal_folder_opens_nothing_but_what_it_is_installed_with() {
        let folder = std::env::temp_dir().join(format!("ebb-files-{}", std::process::id()));
        let program = folder.join("bin/qemu");
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        std::fs::write(&program, "").unwrap();
        let found = folders_of(&program);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(found.contains(&folder.join("bin")) && found.contains(&folder.join("share")));
        assert!(!found.contains(&folder), "{found:?}");
    }
}
