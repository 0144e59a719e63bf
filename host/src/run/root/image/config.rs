//! The program of an image and its settings.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The program of an image, with its environment, working directory and user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// Variables as `NAME=VALUE`.
    pub(crate) environment: Vec<String>,
    /// The working directory. `None` for `/`.
    pub(crate) working_folder: Option<String>,
    /// The user, and perhaps a group after a colon. `None` for root.
    pub(crate) user: Option<String>,
    /// Folders that exist in each guest: the image's volumes.
    pub(crate) volumes: Vec<String>,
}

/// The most volumes of an image that are used.
const VOLUMES_MAX: usize = 64;

/// The JSON description of an image, as far as it is used here.
#[derive(Deserialize)]
pub(super) struct Described {
    config: Option<Inner>,
    architecture: Option<String>,
    os: Option<String>,
}

impl Described {
    /// Returns the platform of the image, such as `linux/arm64`, if it is another one than guests
    /// have. Returns `None` for linux/amd64, and if the image names none.
    pub(super) fn foreign_platform(&self) -> Option<String> {
        let os = self.os.as_deref().filter(|os| !os.is_empty());
        let os = os.unwrap_or("linux");
        let architecture = self.architecture.as_deref().filter(|name| !name.is_empty());
        let architecture = architecture.unwrap_or("amd64");
        let is_ours = os == "linux" && matches!(architecture, "amd64" | "x86_64");
        (!is_ours).then(|| format!("{os}/{architecture}"))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Inner {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    volumes: Option<BTreeMap<String, IgnoredAny>>,
}

impl Config {
    /// Returns the settings in the image's description. The command is its entry point with its
    /// arguments behind it. Users called `root` or `0` without another group become `None`. Applies
    /// [`Self::checked`].
    pub(super) fn read(described: Described) -> Self {
        let inner = described.config.unwrap_or_default();
        let mut command = inner.entrypoint.unwrap_or_default();
        command.extend(inner.cmd.unwrap_or_default());
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let environment = inner.env.unwrap_or_default();
        let is_root = |user: &String| user.split(':').all(|name| matches!(name, "root" | "0"));
        let volumes = inner.volumes.unwrap_or_default();
        Self {
            command,
            environment,
            working_folder: given(inner.working_dir),
            user: given(inner.user).filter(|user| !is_root(user)),
            volumes: volumes.into_keys().take(VOLUMES_MAX).collect(),
        }
        .checked()
    }

    /// Returns the settings without parts that `ebb` would misunderstand. Removes zero bytes from
    /// the command. Removes variables with zero bytes or without a name, and those without `=`,
    /// which would get the host's value.
    pub(super) fn checked(mut self) -> Self {
        self.environment.retain(|setting| {
            let name = setting.split_once('=').map(|(name, _)| name);
            name.is_some_and(|name| !name.is_empty()) && !setting.contains('\0')
        });
        let words = self.command.iter_mut();
        words.for_each(|word| word.retain(|c| c != '\0'));
        self.volumes
            .retain(|path| path.starts_with('/') && !path.contains('\0'));
        self.volumes.truncate(VOLUMES_MAX);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_for_another_platform_is_told() {
        let foreign = |text: &str| {
            let described: Described = serde_json::from_str(text).unwrap();
            described.foreign_platform()
        };
        assert_eq!(foreign("{}"), None);
        assert_eq!(foreign(r#"{"os": "linux", "architecture": "amd64"}"#), None);
        let arm = foreign(r#"{"architecture": "arm64"}"#);
        assert_eq!(arm.as_deref(), Some("linux/arm64"));
        let other = foreign(r#"{"os": "windows", "architecture": "amd64"}"#);
        assert_eq!(other.as_deref(), Some("windows/amd64"));
    }

    #[test]
    fn users_and_volumes_are_read() {
        let read = |text: &str| Config::read(serde_json::from_str(text).unwrap());
        for (user, kept) in [("0:5", true), ("root", false), ("0:0", false), ("7", true)] {
            let config = read(&format!(r#"{{"config": {{"User": "{user}"}}}}"#));
            assert_eq!(config.user.is_some(), kept, "{user}");
        }
        let config = read(r#"{"config": {"Volumes": {"/data": {}, "odd": {}}}}"#);
        assert_eq!(config.volumes, ["/data"]);
    }

    #[test]
    fn variables_of_the_host_are_not_asked_for() {
        let config = Config {
            command: vec!["a\0b".into()],
            environment: ["SECRET", "=x", "A=1", "B=\0", "C="]
                .map(String::from)
                .into(),
            ..Config::default()
        };
        let checked = config.checked();
        assert_eq!(checked.environment, ["A=1", "C="]);
        assert_eq!(checked.command, ["ab"]);
    }
}
