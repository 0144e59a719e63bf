//! Loads the drivers that a stock kernel has as modules.

use crate::failure::Failure;
use ebb_wire::boot::{DEMAND, DEMAND_LIST, INIT, MODULES};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use rustix::system::finit_module;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The path of the program that Linux runs when it needs a module.
const LOADER: &str = "/proc/sys/kernel/modprobe";

/// Loads all modules in [`MODULES`], in the order of their names, and deletes their files to free
/// memory. Does nothing if the folder does not exist. Fails if the folder cannot be read or a
/// module cannot be loaded.
pub(crate) fn load_all() -> Result<(), Failure> {
    let failed = |source| Failure::new(format!("list {MODULES}"), source);
    let mut paths = Vec::new();
    match fs::read_dir(MODULES) {
        Ok(entries) => {
            for entry in entries {
                paths.push(entry.map_err(failed)?.path());
            }
        }
        // A kernel may have all of them built in.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    paths.sort();
    paths.into_iter().try_for_each(load)
}

/// Returns whether ebb has packed modules to load on demand.
pub(crate) fn are_on_demand() -> bool {
    Path::new(DEMAND_LIST).exists()
}

/// Makes Linux run this program when it needs a module, if there are modules to load on demand.
/// Also creates the device files whose first use requests a module. Fails if Linux refuses the
/// program, the list of modules cannot be read, or a device file cannot be created.
pub(crate) fn offer() -> Result<(), Failure> {
    if !are_on_demand() {
        return Ok(());
    }
    fs::write(LOADER, INIT).map_err(|error| Failure::new(format!("write {LOADER}"), error))?;
    for (name, major, minor) in devices(&list()?) {
        let path = Path::new("/dev").join(name);
        let device = makedev(major, minor);
        match mknodat(
            CWD,
            &path,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o600),
            device,
        ) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Failure::new(format!("make {}", path.display()), errno)),
        }
    }
    Ok(())
}

/// Loads the modules that Linux requests by `name`, in order. Fails if the list of modules cannot
/// be read, the name is unknown, or a module cannot be loaded.
pub(crate) fn provide(name: &str) -> Result<(), Failure> {
    let list = list()?;
    let order = order(&list, name).ok_or(Failure::List(DEMAND_LIST))?;
    for module in order {
        insert(&Path::new(DEMAND).join(format!("{module}.ko")))?;
    }
    Ok(())
}

fn list() -> Result<String, Failure> {
    fs::read_to_string(DEMAND_LIST)
        .map_err(|error| Failure::new(format!("read {DEMAND_LIST}"), error))
}

/// Returns the modules for a name, in order. `-` and `_` are the same to Linux. Returns `None` if
/// the list does not have the name.
fn order<'a>(list: &'a str, name: &str) -> Option<impl Iterator<Item = &'a str>> {
    let same = |one: &str| one.replace('-', "_") == name.replace('-', "_");
    list.lines().find_map(|line| {
        let mut words = line.split(' ');
        words.next().filter(|key| same(key)).map(|_| words)
    })
}

/// Returns the device files whose module is loaded on first use: name, major and minor number.
fn devices(list: &str) -> Vec<(&str, u32, u32)> {
    let mut devices = Vec::new();
    let mut last = ("", "");
    for line in list.lines() {
        let (Some((key, _)), Some((_, module))) = (line.split_once(' '), line.rsplit_once(' '))
        else {
            continue;
        };
        if let Some(name) = key.strip_prefix("devname:") {
            last = (name, module);
        } else if let Some(numbers) = key.strip_prefix("char-major-")
            && let Some((major, minor)) = numbers.split_once('-')
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
            && last.1 == module
            && !last.0.contains('/')
        {
            devices.push((last.0, major, minor));
        }
    }
    devices
}

/// Loads the module at `path` and deletes its file. Fails if Linux refuses the module or the file
/// cannot be deleted.
fn load(path: PathBuf) -> Result<(), Failure> {
    insert(&path)?;
    let name = path.display();
    fs::remove_file(&path).map_err(|error| Failure::new(format!("remove {name}"), error))
}

/// Loads the module at `path`. Succeeds also if the module is loaded already. Fails if the file
/// cannot be opened or Linux refuses the module.
fn insert(path: &Path) -> Result<(), Failure> {
    let name = path.display();
    let file = File::open(path).map_err(|error| Failure::new(format!("open {name}"), error))?;
    match finit_module(&file, c"", 0) {
        // The module is built in, or another process has just loaded it.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Failure::new(format!("load {name}"), errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "fs-ext4 crc16 jbd2 ext4\nloop loop\ndevname:loop-control loop\n\
        char-major-10-237 loop\nnls_iso8859_1 nls_iso8859_1\n";

    #[test]
    fn a_name_gives_modules_in_order() {
        let order = |name| order(LIST, name).map(Iterator::collect::<Vec<_>>);
        assert_eq!(order("fs-ext4"), Some(vec!["crc16", "jbd2", "ext4"]));
        assert_eq!(order("nls_iso8859-1"), Some(vec!["nls_iso8859_1"]));
        assert_eq!(order("fs-btrfs"), None);
        assert_eq!(order(""), None);
    }

    #[test]
    fn devices_have_a_name_and_numbers() {
        assert_eq!(devices(LIST), [("loop-control", 10, 237)]);
        assert_eq!(
            devices("devname:a/b x\nchar-major-1-2 x\n\nchar-major-1 y\n"),
            []
        );
    }
}
