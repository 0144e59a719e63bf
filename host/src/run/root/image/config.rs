//! The program of an image and its settings.

use serde::{Deserialize, Serialize};

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
}

/// The JSON description of an image, as far as it is used here.
#[derive(Deserialize)]
pub(super) struct Described {
    config: Option<Inner>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Inner {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
}

impl Config {
    /// Returns the settings in the image's description. The command is its entry point with its
    /// arguments behind it. Users called `root` or `0` become `None`. Applies [`Self::checked`].
    pub(super) fn read(described: Described) -> Self {
        let inner = described.config.unwrap_or_default();
        let mut command = inner.entrypoint.unwrap_or_default();
        command.extend(inner.cmd.unwrap_or_default());
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let environment = inner.env.unwrap_or_default();
        let is_root = |user: &String| matches!(user.split(':').next(), Some("root" | "0"));
        Self {
            command,
            environment,
            working_folder: given(inner.working_dir),
            user: given(inner.user).filter(|user| !is_root(user)),
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
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
