//! The files that QEMU may open by a path: its own program, libraries and firmware, for reading.
//! All other files are inherited as open descriptors.

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// Files and folders that QEMU may read: programs, libraries and firmware.
const READ: [&str; 7] = [
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/sys/devices/system",
    "/dev/urandom",
];
/// Devices that QEMU may read and write.
const WRITTEN: [&str; 2] = ["/dev/null", "/dev/kvm"];
/// Firmware folders in the folder of a program that was built but not installed.
const BESIDE: [&str; 2] = ["pc-bios", "qemu-bundle"];
/// Firmware and library folders in the parent folder of an installed program's folder.
const INSTALLED: [&str; 4] = ["share/qemu", "share/seabios", "lib", "lib64"];
/// Folders that contain only installed software.
const STORES: [&str; 3] = ["/nix", "/gnu", "/snap"];
/// A folder that contains installed software, one folder for each package.
const PACKAGES: &str = "/opt";

/// Returns the descriptor of a Landlock rule that allows only the files that QEMU needs, including
/// those in the folders of `program`. Paths that do not exist on this host are left out. `kvm` is
/// the `/dev/kvm` in QEMU's mount namespace, if it is not the host's. `ram` is an inherited file
/// that QEMU reopens through its descriptor, for reading and writing but not for truncation. The
/// caller keeps it open until the process has started.
///
/// # Errors
/// If the kernel has no Landlock, or it is switched off, or refuses the rule.
pub(super) fn rule(
    program: &Path,
    kvm: Option<BorrowedFd<'_>>,
    ram: Option<RawFd>,
) -> io::Result<OwnedFd> {
    let abi = ABI::V3;
    // Scopes forbid signals to processes outside and connections to their abstract sockets.
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
    let own = places_of(program).into_iter();
    let paths = READ.iter().map(|path| (PathBuf::from(path), read));
    let paths = paths.chain(own.map(|place| (place, read)));
    let written = AccessFs::ReadFile | AccessFs::WriteFile;
    let paths = paths.chain(WRITTEN.iter().map(|path| (PathBuf::from(path), written)));
    for (path, access) in paths {
        // A path that does not exist on this host needs no rule.
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
    // SAFETY: the caller keeps the file open until the process has started.
    let ram = ram.map(|file| unsafe { BorrowedFd::borrow_raw(file) });
    for file in kvm.into_iter().chain(ram) {
        rules = rules
            .add_rule(PathBeneath::new(file, written))
            .map_err(failed)?;
    }
    let rule: Option<OwnedFd> = rules.into();
    rule.ok_or_else(|| io::Error::other("this kernel has no Landlock, or it is off"))
}

/// Applies the Landlock rule `rule` to the calling thread and the threads and processes that it
/// starts. This cannot be undone. Allocates nothing, for use between `fork` and `exec`.
///
/// # Errors
/// If the kernel refuses, for example because the thread may still gain privileges.
pub(super) fn apply(rule: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all arguments are numbers. The rule restricts only the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rule.as_raw_fd(), 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the paths that belong to a program outside of the system folders: the program, the
/// firmware and libraries next to it, and the whole store or package that contains it (`/nix`,
/// `/opt/NAME`). Returns none for a program in a system folder or one that cannot be resolved.
fn places_of(program: &Path) -> Vec<PathBuf> {
    let Ok(real) = program.canonicalize() else {
        return Vec::new();
    };
    if READ.iter().any(|folder| real.starts_with(folder)) {
        return Vec::new();
    }
    let parts: Vec<_> = real.components().collect();
    if STORES.iter().any(|store| real.starts_with(store)) {
        return vec![parts[..2].iter().collect()];
    }
    if real.starts_with(PACKAGES) && parts.len() > 3 {
        return vec![parts[..3].iter().collect()];
    }
    let Some(own) = real.parent() else {
        return Vec::new();
    };
    let mut all = vec![real.clone()];
    all.extend(BESIDE.iter().map(|name| own.join(name)));
    let is_for_programs = ["bin", "sbin", "libexec"]
        .iter()
        .any(|name| own.ends_with(name));
    if let (true, Some(above)) = (is_for_programs, own.parent()) {
        all.extend(INSTALLED.iter().map(|name| above.join(name)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_system_need_no_places_of_their_own() {
        assert!(places_of(Path::new("/bin/sh")).is_empty());
        assert!(places_of(Path::new("/no/such/program")).is_empty());
    }

    #[test]
    fn a_program_elsewhere_opens_nothing_but_what_it_is_installed_with() {
        let folder = std::env::temp_dir().join(format!("ebb-files-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        let folder = folder.canonicalize().unwrap();
        let [in_bin, alone] = ["bin/qemu", "qemu"].map(|name| folder.join(name));
        for program in [&in_bin, &alone] {
            std::fs::write(program, "").unwrap();
        }
        let (found, of_alone) = (places_of(&in_bin), places_of(&alone));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(found.contains(&in_bin) && found.contains(&folder.join("share/qemu")));
        assert!(of_alone.contains(&alone) && of_alone.contains(&folder.join("pc-bios")));
        for place in found.iter().chain(&of_alone) {
            assert!(!folder.starts_with(place), "{place:?}");
            assert_ne!(*place, folder.join("bin"));
        }
    }
}
