//! Recognizes the kind of an archive, and reads the layers of its image.

use super::config::{Config, Described};
use super::entries::is_head;
use super::error::ImageError;
use super::index::{Body, Index, Whiteouts};
use super::reader_service::ReaderService;
use super::section::Section;
use super::unpack::{UNPACKED_MAX, unpack};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The most bytes of a JSON description.
const JSON_MAX: u64 = 4 << 20;
/// The most layers of an image.
const LAYERS_MAX: usize = 1024;
/// The most nested lists of images.
const LISTS_MAX: usize = 4;

/// An item of `manifest.json`, as `docker save` writes it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

/// A reference to a blob in an OCI image layout.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

/// A list of images, or the description of one.
#[derive(Deserialize)]
struct Manifest {
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// Makes the index of the image in `archive`, and returns it with the image's program and settings.
/// An archive that is neither of `docker save` nor an OCI layout is taken for a plain file system,
/// with empty settings. `what` is the archive's name for messages. Decompressed bytes go to a file
/// of `service`.
///
/// # Errors
/// Fails if the archive is no tar archive, if it has more or less than one image for linux/amd64,
/// if a part is missing or malformed, or if a limit is exceeded.
pub(super) fn read(
    archive: Section,
    what: &str,
    service: &mut dyn ReaderService,
) -> Result<(Index, Config), ImageError> {
    let mut budget = UNPACKED_MAX;
    let archive = unpack(archive, what, &mut budget, service)?;
    let mut block = [0; 512];
    let count = archive.read_at(&mut block, 0)?;
    if count < block.len() || !is_head(&block) {
        return Err(ImageError::NoTar);
    }
    let mut outer = Index::new();
    outer.add_layer(archive, Whiteouts::None)?;
    let (config, layers) = if has(&outer, "manifest.json") {
        saved(&outer)?
    } else if has(&outer, "oci-layout") && has(&outer, "index.json") {
        oci(&outer)?
    } else {
        outer.finish();
        return Ok((outer, Config::default()));
    };
    if layers.len() > LAYERS_MAX {
        return Err(ImageError::Image(format!("it has {} layers", layers.len())));
    }
    let described: Described = json(&outer, &config)?;
    if let Some(platform) = described.foreign_platform() {
        return Err(ImageError::Image(format!(
            "it is for {platform}; guests run images for linux/amd64"
        )));
    }
    let config = Config::read(described);
    let mut index = outer.beside();
    for name in &layers {
        let layer = unpack(blob(&outer, name)?, name, &mut budget, service)?;
        let added = index.add_layer(layer, Whiteouts::Honoured);
        added.map_err(|error| ImageError::Layer {
            name: name.clone(),
            source: Box::new(error),
        })?;
    }
    index.finish();
    Ok((index, config))
}

/// Finds the configuration and the layers in an archive of `docker save`.
fn saved(outer: &Index) -> Result<(String, Vec<String>), ImageError> {
    let mut images: Vec<Saved> = json(outer, "manifest.json")?;
    match images.len() {
        1 => Ok(images
            .pop()
            .map(|image| (image.config, image.layers))
            .unwrap_or_default()),
        count => Err(ImageError::Image(format!(
            "it has {count} images; save one"
        ))),
    }
}

/// Finds the configuration and the layers in an OCI image layout.
fn oci(outer: &Index) -> Result<(String, Vec<String>), ImageError> {
    let mut manifest: Manifest = json(outer, "index.json")?;
    for _ in 0..LISTS_MAX {
        if let (Some(config), Some(layers)) = (&manifest.config, &manifest.layers) {
            let layers = layers.iter().map(|layer| path_of(&layer.digest));
            return Ok((path_of(&config.digest), layers.collect()));
        }
        let images = manifest.manifests.unwrap_or_default();
        let ours = |descriptor: &&Descriptor| {
            let platform = descriptor.platform.as_ref();
            platform.is_none_or(|p| p.os == "linux" && p.architecture == "amd64")
        };
        let ours: Vec<_> = images.iter().filter(ours).collect();
        let [one] = ours[..] else {
            return Err(ImageError::Image(format!(
                "it has {} images for linux/amd64; an archive of one is wanted",
                ours.len()
            )));
        };
        manifest = json(outer, &path_of(&one.digest))?;
    }
    Err(ImageError::Image("its lists of images lead to none".into()))
}

fn path_of(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

fn has(outer: &Index, name: &str) -> bool {
    blob(outer, name).is_ok()
}

fn blob(outer: &Index, name: &str) -> Result<Section, ImageError> {
    // Links are followed, because older archives have links for equal layers.
    let found = outer
        .find(name.as_bytes(), true)
        .map(|id| outer.node(id).body);
    match found {
        Ok(Body::File(content)) => Ok(content),
        _ => Err(ImageError::Missing(name.escape_default().to_string())),
    }
}

fn json<T: DeserializeOwned>(outer: &Index, name: &str) -> Result<T, ImageError> {
    let content = blob(outer, name)?;
    if content.len() > JSON_MAX {
        return Err(ImageError::Image(format!(
            "{name} has {} bytes",
            content.len()
        )));
    }
    let mut bytes = vec![0; usize::try_from(content.len()).unwrap_or(0)];
    let count = content.read_at(&mut bytes, 0)?;
    serde_json::from_slice(&bytes[..count]).map_err(|source| ImageError::Json {
        name: name.to_owned(),
        source,
    })
}
