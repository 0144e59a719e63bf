//! `ebb pages`: manual pages, shell completions and pages of the book, generated from the
//! definition of the command line.

#[cfg(test)]
mod json;
mod manual;
mod reference;
mod value;

#[cfg(test)]
pub(crate) use json::problems_of;

use crate::failure::Failure;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Options of `ebb pages`.
#[derive(Args, Debug)]
pub(crate) struct PagesOptions {
    /// Folder for what belongs into `share`: `man/man1` and the folders of bash, fish and zsh
    pub(crate) folder: PathBuf,

    /// Write the generated pages of the book into the folder instead
    #[arg(long)]
    pub(crate) book: bool,
}

/// Returns the path below `share` where a shell of Debian looks for completions. Returns `None` for
/// a shell without such a path.
fn place(shell: Shell) -> Option<&'static str> {
    match shell {
        Shell::Bash => Some("bash-completion/completions/ebb"),
        Shell::Fish => Some("fish/vendor_completions.d/ebb.fish"),
        Shell::Zsh => Some("zsh/vendor-completions/_ebb"),
        _ => None,
    }
}

fn write_all(mut command: Command, folder: &Path) -> io::Result<()> {
    let pages = folder.join("man/man1");
    fs::create_dir_all(&pages)?;
    manual::write_all(command.clone(), &pages)?;
    for shell in Shell::value_variants() {
        let Some(place) = place(*shell) else {
            continue;
        };
        let file = folder.join(place);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut text = Vec::new();
        clap_complete::generate(*shell, &mut command, "ebb", &mut text);
        fs::write(file, text)?;
    }
    Ok(())
}

/// Writes the manual pages of `command` and the completions for bash, fish and zsh below the folder
/// in `options`. Creates missing folders and replaces existing files. With `--book` writes the
/// generated pages of the book into this folder instead. Returns the exit status 0. Fails with
/// [`Failure::Write`] if a folder or file cannot be written; files that were written before stay.
pub(crate) fn write(command: Command, options: &PagesOptions) -> Result<u8, Failure> {
    if options.book {
        reference::write(command, &options.folder)?;
        return Ok(0);
    }
    write_all(command, &options.folder).map_err(|source| Failure::Write {
        path: options.folder.clone(),
        source,
    })?;
    Ok(0)
}
