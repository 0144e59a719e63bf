//! Parses disks as users write them: `data=disk.img,ro`, `scratch=ram:64M`.

use crate::failure::Failure;
use crate::system::open_named;
use crate::text::{Size, one_line};
use ebb_blk::image::{Found, Location, Spec};
use ebb_blk::server::Disk;
use rustix::fs::OFlags;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

/// An image argument: `PATH` or `ram:SIZE`, followed by `,ro`, `,cached` or both. Parsing fails if
/// the path is empty or the size is not valid. It does not look for the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ImageArgument(pub(crate) Spec);

/// A named image argument: `NAME=IMAGE`, with an [`ImageArgument`], and with `,incoming` at the end
/// for a guest that will migrate to this host. Parsing fails if there is no `=`, if the image is
/// not valid, or if a RAM disk has `,incoming`.
#[derive(Clone, Debug)]
pub(crate) struct DiskArgument {
    /// The name and the image.
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
        Failure::Disk(format!("cannot open {}: {why}", one_line(path)))
    })?;
    Ok(Spec {
        location: Location::Found {
            path: path.clone(),
            file: Found(Arc::new(file)),
        },
        ..spec.clone()
    })
}

impl FromStr for ImageArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut path, mut read_only, mut cached) = (text, false, false);
        // Suffixes are removed from the end, so that a path may contain commas.
        loop {
            if let Some(rest) = path.strip_suffix(",ro") {
                (path, read_only) = (rest, true);
            } else if let Some(rest) = path.strip_suffix(",cached") {
                (path, cached) = (rest, true);
            } else {
                break;
            }
        }
        if path.is_empty() {
            return Err(format!("`{text}` names no image"));
        }
        let location = match path.strip_prefix("ram:") {
            Some(size) => {
                let size: Size = size.parse().map_err(|error| format!("{error}"))?;
                Location::Ram {
                    bytes: size.bytes(),
                }
            }
            None => Location::Path(path.into()),
        };
        Ok(Self(Spec {
            location,
            read_only,
            cached,
        }))
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
        let ImageArgument(spec) = image.parse()?;
        if incoming && matches!(spec.location, Location::Ram { .. }) {
            return Err(format!(
                "`{text}`: a RAM disk cannot migrate with its guest; leave `,incoming` out"
            ));
        }
        Ok(Self {
            disk: Disk {
                name: name.to_owned(),
                spec,
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
        let image = |text: &str| text.parse::<ImageArgument>().map(|image| image.0);
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
}
