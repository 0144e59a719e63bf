//! Parses disks as users write them: `data=disk.img,ro`, `scratch=ram:64M,max_buffer_pages=256`.

use crate::failure::Failure;
use crate::system::open_named;
use crate::system::opened::own_path;
use crate::text::{Size, one_line};
use ebb_blk::image::{Found, Location, OpenError, Spec};
use ebb_blk::knobs::{Knob, KnobError, Setting};
use ebb_blk::request::SECTOR_BYTES;
use ebb_blk::server::{Disk, ServeError};
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// An image argument: `PATH` or `ram:SIZE`, followed by any of `,ro`, `,cached` and `,KNOB=VALUE`.
/// Parsing fails if the path is empty, the size is not that of a disk, a word or a knob comes
/// twice, or a knob has no valid value or is one of Xen's disks. A word after a comma that is none
/// of these is part of the path. Parsing does not look for the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ImageArgument {
    pub(crate) spec: Spec,
    /// The settings with which the disk starts, in the order in which they were given. Each knob is
    /// set at most once.
    pub(crate) settings: Vec<Setting>,
}

/// A named image argument: `NAME=IMAGE`, with an [`ImageArgument`], and with `,incoming` at the end
/// for a guest that will migrate to this host. Parsing fails if there is no `=`, if the image is
/// not valid, or if a RAM disk has `,incoming`.
#[derive(Clone, Debug)]
pub(crate) struct DiskArgument {
    /// The name, the image and the settings.
    pub(crate) disk: Disk,
    /// Whether a guest will migrate here.
    pub(crate) incoming: bool,
}

/// Opens the image that the user named, so that later opens use this descriptor and not the path.
/// The descriptor is one of `O_PATH`, so the permission to read is not checked here. Returns an
/// image that is not named by a path, such as a RAM disk, unchanged.
///
/// # Errors
/// [`Failure::Disk`] if the file does not exist, or the path contains another user's link that is
/// not trusted.
pub(crate) fn found(spec: &Spec) -> Result<Spec, Failure> {
    let Location::Path(path) = &spec.location else {
        return Ok(spec.clone());
    };
    let file = open_named(path, OFlags::PATH).map_err(|error| {
        let why = io::Error::from(error);
        let hint = match why.kind() {
            io::ErrorKind::NotFound => part_of_path(path),
            _ => String::new(),
        };
        Failure::Disk(format!("cannot open {}: {why}{hint}", one_line(path)))
    })?;
    Ok(Spec {
        location: Location::Found {
            path: path.clone(),
            file: Found(Arc::new(file)),
        },
        ..spec.clone()
    })
}

/// Returns the message of `error`, for which the image of `spec` is not served. If the image can be
/// read and not written, the message says that `,ro` attaches it for reading.
pub(super) fn refusal(error: &ServeError, spec: &Spec) -> String {
    let is_for_writing = match error {
        ServeError::Image {
            source: OpenError::Open { source, .. },
            ..
        } => matches!(
            source.kind(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
        ),
        _ => false,
    };
    if is_for_writing && !spec.read_only && is_readable(&spec.location) {
        return format!("{error}; it can be read, so add `,ro` to attach it for reading");
    }
    error.to_string()
}

/// Returns whether this process may read the image. Returns `false` for a RAM disk.
fn is_readable(location: &Location) -> bool {
    // Opening a FIFO must not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = match location {
        Location::Path(path) => rustix::fs::open(path, flags, Mode::empty()),
        Location::Found { file, .. } => rustix::fs::open(own_path(&*file.0), flags, Mode::empty()),
        Location::Ram { .. } => return false,
    };
    opened.is_ok()
}

/// Returns the end of a message about a missing image whose path has a comma: that the words after
/// the last comma are no option of a disk. Returns nothing for other paths.
fn part_of_path(path: &Path) -> String {
    let text = one_line(path).to_string();
    let Some((_, word)) = text.rsplit_once(',') else {
        return String::new();
    };
    let knobs = Knob::ALL
        .into_iter()
        .filter(|knob| !knob.is_for_xen_alone());
    let knobs: Vec<_> = knobs.map(|knob| format!("{knob}=N")).collect();
    format!(
        "; `,{word}` was taken for a part of the path, as the options of a disk are ro, cached, {}",
        knobs.join(", ")
    )
}

/// Parses the word after a comma as a setting of a disk. Returns `None` if it does not begin with
/// the name of a knob. Fails if the knob has no valid value, or is one of Xen's disks.
fn own_setting(word: &str) -> Result<Option<Setting>, String> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    match name.parse::<Knob>() {
        Err(_) => Ok(None),
        Ok(knob) if knob.is_for_xen_alone() => {
            let setting = word.to_owned();
            Err(KnobError::ForXenAlone { setting, knob }.to_string())
        }
        Ok(_) => word.parse().map(Some).map_err(|error| format!("{error}")),
    }
}

/// The largest size of a RAM disk in bytes: the largest offset in a file.
const RAM_MOST: u64 = i64::MAX.unsigned_abs();

/// Parses the size of a RAM disk in bytes. Fails if it is no size, is 0, is no whole number of
/// sectors, or is larger than a file can be. The message has `size` as the user wrote it.
fn ram_bytes(size: &str) -> Result<u64, String> {
    let bytes = size
        .parse::<Size>()
        .map_err(|error| error.to_string())?
        .bytes();
    if bytes > RAM_MOST {
        return Err(format!("`{size}` is more than a disk in memory can have"));
    }
    if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(format!(
            "`{size}` is not the size of a disk, which is a whole number of sectors of \
             {SECTOR_BYTES} bytes"
        ));
    }
    Ok(bytes)
}

impl FromStr for ImageArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut path, mut read_only, mut cached) = (text, false, false);
        let mut settings = Vec::<Setting>::new();
        let twice = |name: &dyn fmt::Display| Err(format!("`{text}` has {name} twice"));
        // Suffixes are removed from the end, so that a path may contain commas.
        while let Some((rest, word)) = path.rsplit_once(',') {
            match word {
                "ro" if read_only => return twice(&word),
                "cached" if cached => return twice(&word),
                "ro" => read_only = true,
                "cached" => cached = true,
                _ => match own_setting(word)? {
                    Some(new) if settings.iter().any(|set| set.knob() == new.knob()) => {
                        return twice(&new.knob());
                    }
                    Some(new) => settings.push(new),
                    None => break,
                },
            }
            path = rest;
        }
        settings.reverse();
        if path.is_empty() {
            return Err(format!("`{text}` names no image"));
        }
        let location = match path.strip_prefix("ram:") {
            Some(size) => Location::Ram {
                bytes: ram_bytes(size)?,
            },
            None => Location::Path(path.into()),
        };
        let spec = Spec {
            location,
            read_only,
            cached,
        };
        Ok(Self { spec, settings })
    }
}

impl FromStr for DiskArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, image) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` lacks a name; write it like data={text}"))?;
        let (image, incoming) = match image.strip_suffix(",incoming") {
            Some(image) => (image, true),
            None => (image, false),
        };
        let ImageArgument { spec, settings } = image.parse()?;
        if incoming && matches!(spec.location, Location::Ram { .. }) {
            return Err(format!(
                "`{text}`: a RAM disk cannot migrate with its guest; leave `,incoming` out"
            ));
        }
        Ok(Self {
            disk: Disk {
                name: name.to_owned(),
                spec,
                settings,
            },
            incoming,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_at_the_end() {
        let image = |text: &str| text.parse::<ImageArgument>().map(|image| image.spec);
        let path = |path: &str| Location::Path(path.into());
        let spec = image("a,b.img,ro,cached").unwrap();
        assert_eq!(
            (spec.location, spec.read_only, spec.cached),
            (path("a,b.img"), true, true)
        );
        assert_eq!(image("disk,rom").unwrap().location, path("disk,rom"));
        assert_eq!(
            image("ram:64M").unwrap().location,
            Location::Ram { bytes: 64 << 20 }
        );
        for bad in ["", ",ro", "ram:", "ram:much"] {
            assert!(image(bad).is_err(), "{bad}");
        }
        assert!("disk.img".parse::<DiskArgument>().is_err());
        assert_eq!(
            "d=x=y".parse::<DiskArgument>().unwrap().disk.spec.location,
            path("x=y")
        );
        let coming = "d=x,ro,incoming".parse::<DiskArgument>().unwrap();
        assert!(coming.incoming && coming.disk.spec.read_only);
        assert_eq!(coming.disk.spec.location, path("x"));
        assert!("d=ram:1M,incoming".parse::<DiskArgument>().is_err());
    }
    #[test]
    fn settings_stand_among_the_options() {
        let image = |text: &str| text.parse::<ImageArgument>();
        let all = image("a,b=c.img,max_buffer_pages=7,ro,log_stats=1,squeeze_hold_ms=9,cached");
        let ImageArgument { spec, settings } = all.unwrap();
        assert_eq!(spec.location, Location::Path("a,b=c.img".into()));
        assert!(spec.read_only && spec.cached);
        let settings = settings.iter().map(|set| (set.knob(), set.value()));
        let expected = [
            (Knob::MaxBufferPages, 7),
            (Knob::LogStats, 1),
            (Knob::SqueezeHoldMs, 9),
        ];
        assert_eq!(settings.collect::<Vec<_>>(), expected);
        let disk = "d=ram:1M,squeeze_hold_ms=0".parse::<DiskArgument>();
        assert_eq!(disk.unwrap().disk.settings.len(), 1);
        for (bad, words) in [
            (
                "x,max_buffer_pages=16385",
                "max_buffer_pages=16385 is over 16384",
            ),
            (
                "x,max_buffer_pages=1K",
                "`1K` is not a whole number from 0 to 16384",
            ),
            ("x,log_stats", "`log_stats` lacks `=`"),
            (
                "x,max_persistent_grants=1",
                "`max_persistent_grants=1` has no effect",
            ),
            (",max_buffer_pages=1", "names no image"),
            ("ram:1M,pages=1", "1M,pages=1"),
            (
                "x,log_stats=1,log_stats=1",
                "`x,log_stats=1,log_stats=1` has log_stats twice",
            ),
            ("x,log_stats=0,ro,log_stats=1", "has log_stats twice"),
            ("x,ro,cached,ro", "has ro twice"),
            ("x,cached,cached", "has cached twice"),
        ] {
            let why = image(bad).unwrap_err();
            assert!(why.contains(words), "{bad}: {why}");
        }
    }

    #[test]
    fn an_image_that_can_only_be_read_is_refused_with_the_way_to_read_it() {
        let path = std::env::temp_dir().join(format!("ebb-disk-ro-{}", std::process::id()));
        std::fs::write(&path, [0; 512]).unwrap();
        let ImageArgument { spec, .. } = path.display().to_string().parse().unwrap();
        let spec = found(&spec).unwrap();
        // Root could write the file, so the test makes the error itself.
        let refused = |kind: io::ErrorKind, spec: &Spec| {
            let source = OpenError::Open {
                path: path.clone(),
                source: kind.into(),
            };
            let name = "disk0".to_owned();
            refusal(&ServeError::Image { name, source }, spec)
        };
        for kind in [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem,
        ] {
            let why = refused(kind, &spec);
            assert!(
                why.contains("cannot open") && why.contains("`,ro`"),
                "{why}"
            );
        }
        let denied = io::ErrorKind::PermissionDenied;
        assert!(!refused(io::ErrorKind::NotFound, &spec).contains("`,ro`"));
        let read_only = Spec {
            read_only: true,
            ..spec.clone()
        };
        assert!(!refused(denied, &read_only).contains("`,ro`"));
        std::fs::remove_file(&path).unwrap();
        let gone = Spec {
            location: Location::Path(path.clone()),
            ..spec
        };
        assert!(
            !refused(denied, &gone).contains("`,ro`"),
            "nor can it be read"
        );
    }

    #[test]
    fn sizes_that_no_disk_in_memory_has_are_named_as_they_were_written() {
        for size in ["0M", "0.3K", "99999999999T", "16777215T", "8388608T", "9E"] {
            let why = format!("ram:{size}").parse::<ImageArgument>().unwrap_err();
            assert!(why.starts_with(&format!("`{size}` ")), "{why}");
            assert!(!why.contains("9223372036854775808"), "{why}");
        }
        assert!("ram:8388607T".parse::<ImageArgument>().is_ok());
    }

    #[test]
    fn a_misspelt_option_of_a_missing_image_is_named() {
        let missing = |text: &str| {
            let image: ImageArgument = text.parse().unwrap();
            found(&image.spec).unwrap_err().to_string()
        };
        let why = missing("/nowhere/disk.img,max-buffer-pages=7");
        assert!(why.contains("`,max-buffer-pages=7` was taken for"), "{why}");
        assert!(why.contains("max_buffer_pages=N"), "{why}");
        assert!(!why.contains("max_persistent_grants"), "{why}");
        assert!(!missing("/nowhere/disk.img,ro").contains("was taken for"));
    }
}
