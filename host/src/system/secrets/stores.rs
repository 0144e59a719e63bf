//! Files and folders in which programs keep passwords, keys and tokens.

/// Names of credential stores that are secret in any folder: a home folder, a copy of one, a
/// project. A `*` stands for any bytes. Files that programs read in a project's folder, such as
/// `.env` and `.git/config`, are not listed.
const ANYWHERE: &[&str] = &[
    // Keys for other machines.
    ".ssh",                 // OpenSSH
    "id_rsa*",              // OpenSSH: a key outside of `.ssh`
    "id_dsa*",              // the same
    "id_ecdsa*",            // the same
    "id_ed25519*",          // the same
    "krb5cc_*",             // Kerberos: tickets
    ".vnc/passwd",          // VNC
    ".config/remmina",      // Remmina
    ".local/share/remmina", // Remmina
    ".config/filezilla",    // FileZilla
    ".smbcredentials",      // mount.cifs
    ".Xauthority",          // X11: the way to the user's screen and keyboard
    ".ICEauthority",        // X11 sessions
    ".config/pulse/cookie", // PulseAudio: the way to the microphone
    // Keys for messages and files, and password managers.
    ".gnupg",                // GnuPG
    ".password-store",       // pass
    ".pki",                  // NSS: keys and certificates of browsers
    ".config/sops",          // SOPS: age keys
    ".config/age",           // age
    ".config/op",            // 1Password's command
    ".config/1Password",     // 1Password
    ".config/Bitwarden",     // Bitwarden
    ".config/Bitwarden CLI", // Bitwarden's command
    ".config/keepassxc",     // KeePassXC
    ".local/share/keyrings", // GNOME's keyring
    ".local/share/kwalletd", // KDE's wallet
    // Clouds and clusters.
    ".aws",                               // AWS
    ".azure",                             // Azure
    ".config/gcloud",                     // Google Cloud
    ".boto",                              // Google Cloud's gsutil
    ".kube",                              // Kubernetes
    ".oci",                               // Oracle Cloud
    ".aliyun",                            // Alibaba Cloud
    ".bluemix",                           // IBM Cloud
    ".config/doctl",                      // DigitalOcean
    ".config/hcloud",                     // Hetzner Cloud
    ".config/linode-cli",                 // Linode
    ".config/scw",                        // Scaleway
    ".config/ngrok",                      // ngrok
    ".cloudflared",                       // Cloudflare's tunnels
    ".fly/config.yml",                    // Fly.io
    ".s3cfg",                             // s3cmd
    ".config/rclone",                     // rclone
    ".vault-token",                       // Vault
    ".terraform.d/credentials.tfrc.json", // Terraform
    ".terraformrc",                       // Terraform
    ".pulumi/credentials.json",           // Pulumi
    // Registries of images.
    ".docker/config.json",          // Docker
    ".dockercfg",                   // Docker, formerly
    ".config/containers/auth.json", // Podman
    // Servers and version control.
    ".netrc",                  // curl, git, ftp and others
    ".authinfo*",              // Emacs
    ".git-credentials",        // git
    ".config/git/credentials", // git
    ".config/gh",              // GitHub's command
    ".config/hub",             // hub
    ".config/glab-cli",        // GitLab's command
    ".subversion/auth",        // Subversion
    ".pgpass",                 // PostgreSQL
    ".my.cnf",                 // MySQL
    ".mylogin.cnf",            // MySQL
    // Registries of packages.
    ".cargo/credentials*",        // cargo
    ".gem/credentials",           // gem
    ".pypirc",                    // twine
    ".config/pypoetry/auth.toml", // Poetry
    ".composer/auth.json",        // Composer
    ".config/composer/auth.json", // Composer
    ".hex/hex.config",            // hex
    ".pause",                     // CPAN
    ".m2/settings*.xml",          // Maven
    // Models and assistants.
    ".kaggle",                          // Kaggle
    ".huggingface",                     // Hugging Face, formerly
    ".cache/huggingface/token*",        // Hugging Face
    ".cache/huggingface/stored_tokens", // Hugging Face
    ".claude/.credentials.json",        // Claude Code
    ".codex/auth.json",                 // Codex
    ".gemini/oauth_creds.json",         // Gemini's command
    ".config/github-copilot",           // Copilot
    // Browsers, mail and messengers: passwords, cookies, messages.
    ".mozilla",                     // Firefox
    ".thunderbird",                 // Thunderbird
    ".config/google-chrome*",       // Chrome
    ".config/chromium",             // Chromium
    ".config/BraveSoftware",        // Brave
    ".config/microsoft-edge*",      // Edge
    ".config/vivaldi",              // Vivaldi
    ".config/opera",                // Opera
    ".config/Signal",               // Signal
    ".config/Slack",                // Slack
    ".config/discord",              // Discord
    ".config/evolution",            // Evolution
    ".local/share/evolution",       // Evolution
    ".local/share/TelegramDesktop", // Telegram
    ".purple",                      // Pidgin
    ".muttrc",                      // mutt
    ".msmtprc",                     // msmtp
    ".fetchmailrc",                 // fetchmail
    // Wallets.
    ".bitcoin",  // Bitcoin Core
    ".electrum", // Electrum
    // Histories of typed text, which may contain passwords.
    ".*_history",                     // shells, and clients of databases
    ".histfile",                      // zsh
    ".zhistory",                      // zsh
    ".local/share/fish/fish_history", // fish
    ".lesshst",                       // less
    ".viminfo",                       // vim
];

/// Names of credential stores that are secret directly in a home folder only. Projects have files
/// of the same names, which programs need.
const IN_HOMES: &[&str] = &[
    ".npmrc",                    // npm
    ".yarnrc*",                  // yarn
    ".bundle/config",            // Bundler
    ".gradle/gradle.properties", // Gradle
    ".nuget/NuGet/NuGet.Config", // NuGet
    ".config/NuGet",             // NuGet
    ".config/pip/pip.conf",      // pip
    ".pip/pip.conf",             // pip
    ".condarc",                  // conda
    ".curlrc",                   // curl
    ".wgetrc",                   // wget
    ".var/app",                  // Flatpak: the data of browsers and others
    "snap",                      // Snap: the same
];

/// Names of files that are secret anywhere in the folder of a toolchain that the guest sees. They
/// may have the addresses of registries with passwords in them.
const IN_TOOLCHAINS: &[&str] = &[
    "pip.conf",          // pip
    ".condarc",          // conda
    "condarc",           // the same
    "condarc.d",         // the same
    "npmrc",             // npm: all users of one version of node
    ".npmrc",            // npm
    "gemrc",             // gem
    "gradle.properties", // Gradle
];

/// The same as [`IN_TOOLCHAINS`], but for files that each installation has. Their programs fail if
/// they cannot read them.
const INSTALLED: &[&str] = &["conf/settings*.xml"]; // Maven

/// The position of the name of a credential store in a path, as byte offsets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Store {
    /// The start of the last component of the name.
    pub(super) last: usize,
    /// The end of the name.
    pub(super) end: usize,
    /// Whether each installation of a toolchain has this file, with or without secrets.
    pub(super) is_installed: bool,
}

/// Returns the byte offsets in `path` of components that may be a hidden entry or the first
/// component of the name of a credential store. Most paths have none and need no further check.
pub(super) fn candidates(path: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let starts = std::iter::once(0).chain(slashes.map(|(at, _)| at + 1));
    starts.filter(|start| may_begin(&path[*start..]))
}

/// Returns whether `text` may begin with a hidden entry or with the name of a store.
fn may_begin(text: &[u8]) -> bool {
    let of_homes = [&b"."[..], b"id_", b"krb5cc_", b"snap"];
    let of_toolchains = [
        &b"pip.conf"[..],
        b"condarc",
        b"npmrc",
        b"gemrc",
        b"gradle.properties",
        b"conf/settings",
    ];
    let mut prefixes = of_homes.iter().chain(&of_toolchains);
    prefixes.any(|prefix| text.starts_with(prefix))
}

/// Returns the position of the credential store whose name begins at the byte offset `start` of
/// `path`. Returns `None` if no store's name begins there. `in_home` says whether the folder that
/// contains this component is a home folder, and `in_toolchain` whether the component lies in the
/// folder of a toolchain. More names count in both.
pub(super) fn store_at(
    path: &[u8],
    start: usize,
    in_home: bool,
    in_toolchain: bool,
) -> Option<Store> {
    let of_homes: &[&str] = if in_home { IN_HOMES } else { &[] };
    let (of_toolchains, installed): (&[&str], &[&str]) = match in_toolchain {
        true => (IN_TOOLCHAINS, INSTALLED),
        false => (&[], &[]),
    };
    let mut names = ANYWHERE.iter().chain(of_homes).chain(of_toolchains);
    let found = names.find_map(|name| match_at(path, start, name));
    found.or_else(|| {
        let found = installed
            .iter()
            .find_map(|name| match_at(path, start, name));
        Some(Store {
            is_installed: true,
            ..found?
        })
    })
}

/// Matches `name` against `path` at offset `start`, component by component. Returns `None` if they
/// differ.
fn match_at(path: &[u8], mut start: usize, name: &str) -> Option<Store> {
    let mut parts = name.split('/').peekable();
    loop {
        let part = parts.next()?;
        let rest = path.get(start..)?;
        let length = rest.iter().position(|byte| *byte == b'/');
        let length = length.unwrap_or(rest.len());
        if !is_named(&rest[..length], part) {
            return None;
        }
        if parts.peek().is_none() {
            return Some(Store {
                last: start,
                end: start + length,
                is_installed: false,
            });
        }
        start += length + 1;
    }
}

/// Returns whether a path component `part` matches `name`, a component of a store's name that may
/// contain a `*`.
fn is_named(part: &[u8], name: &str) -> bool {
    match name.split_once('*') {
        None => part == name.as_bytes(),
        Some((before, after)) => part
            .strip_prefix(before.as_bytes())
            .is_some_and(|rest| rest.ends_with(after.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_where_it_stands() {
        let lists = [
            (ANYWHERE, false, false),
            (IN_HOMES, true, false),
            (IN_TOOLCHAINS, false, true),
            (INSTALLED, false, true),
        ];
        for (name, in_home, in_toolchain) in
            lists.into_iter().flat_map(|(names, home, toolchain)| {
                names.iter().map(move |name| (name, home, toolchain))
            })
        {
            let name = name.replace('*', "x");
            let path = format!("a/{name}/b");
            assert!(candidates(path.as_bytes()).any(|at| at == 2), "{name}");
            let found = store_at(path.as_bytes(), 2, in_home, in_toolchain).unwrap();
            assert_eq!(found.end, 2 + name.len(), "{name}");
            let last = name.rfind('/').map_or(2, |slash| slash + 3);
            assert_eq!(found.last, last, "{name}");
        }
    }

    #[test]
    fn what_is_only_alike_is_no_store() {
        for path in [
            ".env",
            ".git/config",
            ".npmrc",
            ".sshx",
            "ssh",
            ".docker",
            ".docker/other",
            ".config",
            ".config/other",
            ".history_x",
            "bash_history",
            "snap",
            "pip.conf",
            "conf/settings.xml",
        ] {
            let found = store_at(path.as_bytes(), 0, false, false);
            assert_eq!(found, None, "{path}");
        }
        assert_eq!(store_at(b".docker/config.json", 8, false, false), None);
        assert_eq!(store_at(b"snapshots", 0, true, false), None);
        for path in [".env", "pip.confx", "conf/other.xml", "settings.xml"] {
            let found = store_at(path.as_bytes(), 0, false, true);
            assert_eq!(found, None, "{path}");
        }
    }
}
