//! Works on names in a volume's directories: look up, create, list, rename, remove. The guest has a
//! handle of each directory that it names.

use super::facts::{facts, has_set_id, is_guests_to_change};
use super::handles::Volumes;
use super::listing::Listing;
use super::quota::{FOLDER, NAME, link};
use crate::system::opened::{kind, own_path};
use crate::system::{FolderNames, refuse_kernels_own};
use ebb_wire::root::{Answer, Entry};
use ebb_wire::volume::{Attributes, NAME_MAX};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The most names that are listed of one directory.
const NAMES_MAX: u64 = 1 << 20;

/// The most directories that stay open between two answers to a listing. Another one is read from
/// its beginning for each answer. Its names may be listed twice if it changes in between.
const LISTINGS_MAX: usize = 4;

/// Checks a name of the guest. Fails with `EINVAL` if it is no plain file name, and with
/// `ENAMETOOLONG`.
fn check(name: &[u8]) -> Result<&[u8], Errno> {
    let plain =
        !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| b"/\0".contains(byte));
    match name.len() {
        _ if !plain => Err(Errno::INVAL),
        len if len > NAME_MAX => Err(Errno::NAMETOOLONG),
        _ => Ok(name),
    }
}

/// Opens the file `name` in `folder`. No link is followed and no other directory entered.
fn open(folder: &OwnedFd, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    // With `PATH`, a symbolic link is opened itself instead of followed.
    let resolve = if flags.contains(OFlags::PATH) {
        resolve - ResolveFlags::NO_SYMLINKS
    } else {
        resolve
    };
    rustix::fs::openat2(folder, name, flags, mode, resolve)
}

fn mode(number: u64) -> Result<Mode, Errno> {
    let number = u32::try_from(number).map_err(|_| Errno::INVAL)?;
    Ok(Mode::from_raw_mode(number & 0o777))
}

impl Volumes {
    /// Looks up `name` in the directory of the handle `folder`, without following a symbolic link.
    /// Returns the attributes of the file with its handle, and counts that the guest was given this
    /// handle once more.
    ///
    /// # Errors
    /// Fails with `ENOENT` if nothing has this name, `EINVAL` or `ENAMETOOLONG` for an impossible
    /// name, `EACCES` for a file system of the kernel's own such as `/proc`, `ENFILE` if the guest
    /// has too many handles, `ESTALE` if `folder` is not known, or with another error of the host.
    pub(super) fn look(&mut self, folder: u64, name: &[u8]) -> Result<Attributes, Errno> {
        let entry = self.entry(folder)?;
        let file = open(&entry.file, check(name)?, OFlags::PATH, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        let (read_only, device, volume) = (entry.read_only, entry.device, entry.volume);
        if stat.st_dev != device {
            // Something is mounted there.
            refuse_kernels_own(&file)?;
        }
        let handle = self.grant_handle(file, &stat, read_only, device, volume)?;
        Ok(facts(&stat, handle, device, self.owner))
    }

    /// Writes a listing of the directory of the handle `folder` to `answer`: the position to
    /// continue from, which is 0 at the end, then the names from position `from` on, as far as they
    /// fit. Each name has the file's type and its inode number.
    ///
    /// If names are left, the directory stays open, so that the next request continues there. At
    /// most 4 directories stay open.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `from` is too large, `EOVERFLOW` behind 2^20 names, `ESTALE` if
    /// `folder` is not known, or with another error of the host, such as `ENOTDIR` or `EACCES`.
    pub(super) fn list(
        &mut self,
        folder: u64,
        from: u64,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        if from > NAMES_MAX {
            return Err(Errno::INVAL);
        }
        let kept = self.listings.iter().position(|of| of.folder == folder);
        let kept = kept.and_then(|at| self.listings.remove(at));
        let mut listing = match kept {
            Some(listing) if from > 0 && listing.names.position() == from => listing,
            _ => {
                let mut names = self.names(folder)?;
                names.skip_to(from)?;
                Listing { folder, names }
            }
        };
        let file = &self.entry(folder)?.file;
        let next = answer.placeholder();
        let names = &mut listing.names;
        loop {
            let position = names.position();
            let Some(entry) = names.peek()? else {
                return Ok(());
            };
            if position >= NAMES_MAX {
                return Err(Errno::OVERFLOW);
            }
            let name = entry.file_name().to_bytes();
            let mode = match entry.file_type() {
                FileType::Unknown => {
                    let stat = rustix::fs::statat(file, name, AtFlags::SYMLINK_NOFOLLOW);
                    stat.ok().map(|stat| stat.st_mode)
                }
                kind => Some(kind.as_raw_mode()),
            };
            // Without a mode the file was removed by now.
            let fits = mode.is_none_or(|mode| {
                answer.entry(&Entry {
                    name,
                    attributes: ebb_wire::root::Attributes {
                        mode,
                        version: entry.ino(),
                        ..Default::default()
                    },
                    target: b"",
                })
            });
            if !fits {
                answer.fill(next, position);
                break;
            }
            names.advance();
        }
        self.listings.truncate(LISTINGS_MAX - 1);
        self.listings.push_front(listing);
        Ok(())
    }

    /// Opens a directory to list its names.
    fn names(&self, folder: u64) -> Result<FolderNames, Errno> {
        let entry = self.entry(folder)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, own_path(&entry.file), flags, Mode::empty())?;
        FolderNames::new(file)
    }

    /// Returns the target of the symbolic link of `handle`.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the file is no symbolic link, and with `ESTALE` if the handle is not
    /// known.
    pub(super) fn target(&self, handle: u64) -> Result<Vec<u8>, Errno> {
        let entry = self.entry(handle)?;
        if kind(&rustix::fs::fstat(&entry.file)?) != FileType::Symlink {
            return Err(Errno::INVAL);
        }
        Ok(rustix::fs::readlinkat(&entry.file, c"", Vec::new())?.into_bytes())
    }

    /// Creates an empty regular file `name` in the directory of the handle `folder`. It gets the
    /// permissions `bits` (at most `0o777`), without regard to the umask. Returns its attributes
    /// with a new handle. The file is open for writing at first. If an error comes after the
    /// creation, the file stays.
    ///
    /// # Errors
    /// Fails with `EEXIST` if the name exists, `EINVAL` or `ENAMETOOLONG` for an impossible name,
    /// `EROFS` in a read-only volume, `EDQUOT` at the volume's limit, `ENFILE` if the guest has too
    /// many handles, `ESTALE` if `folder` is not known, or with another error of the host.
    pub(super) fn make_file(
        &mut self,
        folder: u64,
        name: &[u8],
        bits: u64,
    ) -> Result<Attributes, Errno> {
        let entry = self.entry_to_change(folder)?;
        // Checked first, so that no file is created for which there is no handle.
        self.check_room()?;
        let naming = self.check_name(folder, NAME)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOCTTY;
        let (device, volume) = (entry.device, entry.volume);
        let file = open(&entry.file, check(name)?, flags, Mode::RUSR | Mode::WUSR)?;
        self.count_name(&naming)?;
        // Sets the mode regardless of `ebb`'s umask, since the guest applies its own.
        rustix::fs::fchmod(&file, mode(bits)?)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let named = rustix::fs::openat(CWD, own_path(&file), flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&named)?;
        let handle = self.grant_handle(named, &stat, false, device, volume)?;
        self.keep_open(handle, file);
        Ok(facts(&stat, handle, device, self.owner))
    }

    /// Creates an empty directory `name` in the directory of the handle `folder`. It gets the
    /// permissions and the sticky bit of `bits`, without regard to the umask, and inherits the
    /// set-group-ID bit. Returns its attributes with a handle. If an error comes after the
    /// creation, the directory stays.
    ///
    /// # Errors
    /// Fails as [`Self::make_file`].
    pub(super) fn make_folder(
        &mut self,
        folder: u64,
        name: &[u8],
        bits: u64,
    ) -> Result<Attributes, Errno> {
        let entry = self.entry_to_change(folder)?;
        self.check_room()?;
        let naming = self.check_name(folder, FOLDER)?;
        rustix::fs::mkdirat(&entry.file, check(name)?, Mode::RWXU)?;
        self.count_name(&naming)?;
        let made = self.look(folder, name)?;
        self.count_new_folder(made.handle)?;
        let path = own_path(&self.entry(made.handle)?.file);
        if u64::from(FileType::Directory.as_raw_mode()) == made.mode & 0o170_000 {
            // The set-group-ID bit is inherited from the parent directory.
            let inherited = made.mode & 0o2000;
            let kept = u32::try_from((bits & 0o1000) | inherited).unwrap_or(0);
            rustix::fs::chmod(path, mode(bits)? | Mode::from_raw_mode(kept))?;
        }
        self.facts(made.handle)
    }

    /// Creates a symbolic link `name` to `target` in the directory of the handle `folder`. Returns
    /// its attributes with a handle.
    ///
    /// # Errors
    /// Fails with `ENOENT` if `target` is empty or has a zero byte, or as [`Self::make_file`].
    pub(super) fn make_link(
        &mut self,
        folder: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attributes, Errno> {
        let entry = self.entry_to_change(folder)?;
        if target.is_empty() || target.contains(&0) {
            return Err(Errno::NOENT);
        }
        self.check_room()?;
        let naming = self.check_name(folder, link(target))?;
        rustix::fs::symlinkat(target, &entry.file, check(name)?)?;
        self.count_name(&naming)?;
        self.look(folder, name)
    }

    /// Creates the hard link `name` in the directory of the handle `folder` to the file of
    /// `handle`. Returns the file's new attributes.
    ///
    /// # Errors
    /// Fails with `EPERM` for directories, devices, pipes and sockets, and for files with
    /// set-user-ID or set-group-ID. Linux also refuses these to users who do not own them. Fails
    /// with `EXDEV` if the guest found file and directory by different volumes, `EROFS` in a
    /// read-only volume, `EDQUOT` at the volume's limit, `ESTALE` for an unknown handle, or with
    /// another error of the host such as `EEXIST`.
    pub(super) fn name(
        &mut self,
        folder: u64,
        name: &[u8],
        handle: u64,
    ) -> Result<Attributes, Errno> {
        let before = self.facts(handle)?;
        let (to, file) = (self.entry_to_change(folder)?, self.entry_to_change(handle)?);
        if file.volume != to.volume {
            return Err(Errno::XDEV);
        }
        let stat = rustix::fs::fstat(&file.file)?;
        if !is_guests_to_change(kind(&stat)) || has_set_id(&stat) {
            return Err(Errno::PERM);
        }
        let naming = self.check_name(folder, NAME)?;
        let flags = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(CWD, own_path(&file.file), &to.file, check(name)?, flags)?;
        self.count_name(&naming)?;
        self.facts_after(handle, &before)
    }

    /// Removes `name` from the directory of the handle `folder`. With `REMOVEDIR` in `flags` it
    /// removes an empty directory, and otherwise any other file. What the guest had added stays
    /// counted against the volume's limit.
    ///
    /// # Errors
    /// Fails with `EROFS` in a read-only volume, `EINVAL` or `ENAMETOOLONG` for an impossible name,
    /// `ESTALE` if `folder` is not known, or with another error of the host.
    pub(super) fn remove(&mut self, folder: u64, name: &[u8], flags: AtFlags) -> Result<(), Errno> {
        let entry = self.entry_to_change(folder)?;
        rustix::fs::unlinkat(&entry.file, check(name)?, flags)
    }

    /// Renames `name` in `folder` to `new_name` in `to_folder`, or exchanges both. The directories
    /// are given by their handles. `flags` are `NOREPLACE` and `EXCHANGE` of `renameat2`.
    ///
    /// A name counts against the volume's limit if it comes into another directory. Within one
    /// directory only the directory's growth counts. But if the new name does not exist yet, the
    /// volume must still have a page left. So the directories of a full volume do not grow.
    ///
    /// # Errors
    /// Fails with `EINVAL` for other flags or an impossible name, `EROFS` in a read-only volume,
    /// `EXDEV` if the guest found the directories by different volumes, `EDQUOT` at the volume's
    /// limit, `ESTALE` for an unknown handle, or with another error of the host.
    pub(super) fn rename(
        &mut self,
        (folder, name): (u64, &[u8]),
        (to_folder, new_name): (u64, &[u8]),
        flags: u64,
    ) -> Result<(), Errno> {
        let allowed = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
        let flags = u32::try_from(flags).ok().and_then(RenameFlags::from_bits);
        let flags = flags
            .filter(|flags| allowed.contains(*flags))
            .ok_or(Errno::INVAL)?;
        let from = self.entry_to_change(folder)?;
        let to = self.entry_to_change(to_folder)?;
        if from.volume != to.volume {
            return Err(Errno::XDEV);
        }
        let (name, new_name) = (check(name)?, check(new_name)?);
        // A volume has one handle for each directory, so equal handles mean one directory.
        let counts = match (folder == to_folder, flags.contains(RenameFlags::EXCHANGE)) {
            (true, _) => 0,
            (false, false) => NAME,
            (false, true) => 2 * NAME,
        };
        let is_there = rustix::fs::statat(&to.file, new_name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let needed = if is_there { counts } else { counts.max(NAME) };
        let naming = self.check_names([folder, to_folder], counts, needed)?;
        rustix::fs::renameat_with(&from.file, name, &to.file, new_name, flags)?;
        self.count_name(&naming)
    }

    /// Returns the figures of `statfs` for the file system of `handle`: block size in bytes, then
    /// numbers of blocks, free blocks, available blocks, files and free files. In a volume with a
    /// limit, the free space is at most what the guest may still add.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known, or with an error of the host.
    pub(super) fn room(&self, handle: u64) -> Result<[u64; 6], Errno> {
        let entry = self.entry(handle)?;
        let stat = rustix::fs::fstatfs(&entry.file)?;
        let block = u64::try_from(stat.f_bsize).unwrap_or(4096).max(1);
        let left = self.quota(entry.volume)?.left();
        let blocks = left.map_or(u64::MAX, |left| left / block);
        let names = left.map_or(u64::MAX, |left| left / NAME);
        // The used space is shown as the host has it.
        let (free, files) = (stat.f_bfree.min(blocks), stat.f_ffree.min(names));
        Ok([
            block,
            stat.f_blocks
                .saturating_sub(stat.f_bfree)
                .saturating_add(free),
            free,
            stat.f_bavail.min(blocks),
            stat.f_files
                .saturating_sub(stat.f_ffree)
                .saturating_add(files),
            files,
        ])
    }
}
