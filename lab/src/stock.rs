//! The stock guest: Debian's kernel package, unpacked into a cache folder and never installed.

use crate::Failure;
use crate::cpio::Archive;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package series that figures are compared with.
const SERIES: &str = "6.1";
/// What the balloon needs, in the order in which it must be loaded; what is absent or built in
/// is skipped.
const MODULES: [&str; 7] = [
    "virtio_ring",
    "virtio",
    "virtio_mmio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_balloon",
];
/// What the init of a stock guest prints first of all.
pub(crate) const UP: &str = "lab: up";
/// A module file larger than this is not one of those.
const MAX_MODULE_BYTES: usize = 16 << 20;

/// A stock kernel: its image and the modules that its initramfs loads.
#[derive(Debug)]
pub(crate) struct Stock {
    pub(crate) image: PathBuf,
    /// As `uname -r` prints it.
    pub(crate) release: String,
    modules: Vec<(&'static str, Vec<u8>)>,
}

impl Stock {
    /// The kernel under `image` with the modules under `modules`, or Debian's, fetched into
    /// `cache` where it is not there yet.
    pub(crate) fn find(cache: &Path, image: Option<&Path>) -> Result<Self, Failure> {
        let root = match image {
            Some(image) => return Self::from_image(image),
            None => fetch(cache)?,
        };
        let boot = root.join("boot");
        let image = first_entry(&boot, "vmlinuz-")?;
        Self::from_image(&image)
    }

    /// Takes `…/boot/vmlinuz-RELEASE`; its modules are `…/lib/modules/RELEASE`.
    fn from_image(image: &Path) -> Result<Self, Failure> {
        let unusable = |why: &str| Failure::Stock(format!("{}: {why}", image.display()));
        let name = image.file_name().map(|n| n.to_string_lossy().into_owned());
        let release = name
            .as_deref()
            .and_then(|name| name.strip_prefix("vmlinuz-"))
            .ok_or_else(|| unusable("give it as …/boot/vmlinuz-RELEASE"))?
            .to_owned();
        let root = image
            .parent()
            .and_then(Path::parent)
            .ok_or_else(|| unusable("there is no folder above its boot folder"))?;
        let base = ["lib/modules", "usr/lib/modules"]
            .map(|folder| root.join(folder).join(&release))
            .into_iter()
            .find(|folder| folder.is_dir())
            .ok_or_else(|| unusable(&format!("no lib/modules/{release} beside its boot folder")))?;
        let drivers = base.join("kernel/drivers/virtio");
        let mut modules = Vec::new();
        for name in MODULES {
            let path = drivers.join(format!("{name}.ko"));
            match std::fs::read(&path) {
                Ok(bytes) if bytes.len() <= MAX_MODULE_BYTES => modules.push((name, bytes)),
                Ok(_) => return Err(unusable(&format!("{} is too large", path.display()))),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Failure::io(format!("read {}", path.display()), e)),
            }
        }
        if !modules.iter().any(|(name, _)| *name == "virtio_balloon") {
            return Err(unusable(&format!(
                "no virtio_balloon.ko in {}",
                drivers.display()
            )));
        }
        Ok(Self {
            image: image.to_owned(),
            release,
            modules,
        })
    }

    /// An initramfs that loads the balloon driver, runs `words` and powers off.
    ///
    /// `program` is packed as `/bin/program`, whatever `words[0]` is called outside.
    pub(crate) fn initramfs(&self, program: &Path, words: &[&str]) -> Result<Vec<u8>, Failure> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|e| Failure::io(format!("read {}", path.display()), e))
        };
        let busybox = read(&busybox()?)?;
        let build = || -> std::io::Result<Vec<u8>> {
            let mut archive = Archive::new(Vec::new());
            for folder in ["bin", "dev", "lib", "proc", "sys", "tmp"] {
                archive.directory(folder)?;
            }
            archive.file("bin/busybox", 0o755, &busybox)?;
            archive.link("bin/sh", "busybox")?;
            archive.file("bin/program", 0o755, &std::fs::read(program)?)?;
            for (name, bytes) in &self.modules {
                archive.file(&format!("lib/{name}.ko"), 0o644, bytes)?;
            }
            archive.file("init", 0o755, self.init(words).as_bytes())?;
            archive.finish()
        };
        build().map_err(|e| Failure::io(format!("pack {} for Linux", program.display()), e))
    }

    fn init(&self, words: &[&str]) -> String {
        let mut text = format!(
            "#!/bin/sh\n\
             echo '{UP}'\n\
             /bin/busybox mount -t proc proc /proc\n\
             /bin/busybox mount -t sysfs sys /sys\n\
             /bin/busybox mount -t devtmpfs dev /dev\n",
        );
        for (name, _) in &self.modules {
            text.push_str(&format!("/bin/busybox insmod /lib/{name}.ko\n"));
        }
        text.push_str("/bin/program");
        for word in words {
            text.push_str(&format!(" '{}'", word.replace('\'', r"'\''")));
        }
        text.push_str("\necho \"lab: status $?\"\n/bin/busybox reboot -f\n");
        text
    }
}

/// The static busybox of this machine.
pub(crate) fn busybox() -> Result<PathBuf, Failure> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .map(PathBuf::from)
        .find(|p| p.is_file())
        .ok_or(Failure::Stock(
            "no /bin/busybox: install it with apt-get install busybox-static".to_owned(),
        ))
}

/// Fetches and unpacks the kernel package; gives the folder that holds its `boot`.
fn fetch(cache: &Path) -> Result<PathBuf, Failure> {
    let package = newest_package()?;
    let root = cache.join(&package);
    if root.join("complete").is_file() {
        return Ok(root);
    }
    eprintln!("lab: fetching {package} into {}", cache.display());
    let download = cache.join(format!("{package}.download"));
    for folder in [&root, &download] {
        remove_folder(folder)?;
        std::fs::create_dir_all(folder)
            .map_err(|e| Failure::io(format!("make {}", folder.display()), e))?;
    }
    // As root, apt would complain that its own user may not write here.
    let mut apt = Command::new("apt-get");
    apt.args(["-qq", "-o", "APT::Sandbox::User=root", "download", &package])
        .current_dir(&download);
    succeed(
        apt,
        "run `apt-get update` first, or give a kernel with --linux …/boot/vmlinuz-RELEASE",
    )?;
    let archive = first_entry(&download, &package)?;
    let mut unpack = Command::new("dpkg");
    unpack.arg("-x").arg(&archive).arg(&root);
    succeed(unpack, "the package may be damaged, or the disk full")?;
    remove_folder(&download)?;
    std::fs::write(root.join("complete"), &package)
        .map_err(|e| Failure::io(format!("write into {}", root.display()), e))?;
    Ok(root)
}

/// The newest stock kernel package of the series that apt knows.
fn newest_package() -> Result<String, Failure> {
    let pattern = format!(
        r"^linux-image-{}\.[0-9]+-[0-9]+-amd64$",
        SERIES.replace('.', r"\.")
    );
    let mut search = Command::new("apt-cache");
    search.args(["search", "--names-only", &pattern]);
    let listing = succeed(search, "this needs Debian or a relative of it")?;
    let abi = |name: &str| -> Option<u32> { name.split('-').nth(3)?.parse().ok() };
    listing
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .max_by_key(|name| abi(name))
        .map(str::to_owned)
        .ok_or_else(|| {
            Failure::Stock(format!(
                "apt knows no kernel package of series {SERIES}: run `apt-get update`, \
                 or give a kernel with --linux …/boot/vmlinuz-RELEASE"
            ))
        })
}

fn remove_folder(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::io(format!("remove {}", path.display()), e))
        }
        _ => Ok(()),
    }
}

/// Runs `command` and gives its output; its own words are part of the error.
fn succeed(mut command: Command, advice: &str) -> Result<String, Failure> {
    let name = format!("{command:?}");
    let output = command
        .output()
        .map_err(|e| Failure::io(format!("run {name}"), e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::Stock(format!(
        "{name} ended with {}: {said}\n{advice}",
        output.status
    )))
}

/// The first entry of `folder` whose name begins with `prefix`.
fn first_entry(folder: &Path, prefix: &str) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(folder)
        .map_err(|e| Failure::io(format!("list {}", folder.display()), e))?;
    let mut names: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(prefix))
        })
        .collect();
    names.sort();
    names
        .into_iter()
        .next()
        .ok_or_else(|| Failure::Stock(format!("nothing called {prefix}… in {}", folder.display())))
}
