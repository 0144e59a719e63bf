//! Pages of the book that are generated: the options of all commands, and the metrics.

use super::value::value_of;
use crate::failure::Failure;
use crate::metrics;
use clap::{Arg, Command};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The first lines of a generated page.
const GENERATED: &str = "<!-- Written by `make reference`. -->";

/// Writes the generated pages of `command`, which is `ebb`, into `folder`. Replaces existing files.
/// Fails with [`Failure::Write`] if a file cannot be written; files that were written before stay.
pub(super) fn write(command: Command, folder: &Path) -> Result<(), Failure> {
    for (name, text) in pages(command) {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| Failure::Write { path, source })?;
    }
    Ok(())
}

/// Returns the name and the text of each generated page.
fn pages(command: Command) -> [(&'static str, String); 2] {
    let metrics = metrics::table();
    [
        ("options.md", options(command)),
        (
            "metrics.md",
            format!(
                "# Metrics\n\n{GENERATED}\n\n`ebb metrics` serves these figures of all guests of \
                 its user as OpenMetrics, for Prometheus. Each sample has the labels `guest`, the \
                 guest's name, and `pid`, the process number of its `ebb run`. A guest whose kernel \
                 does not tell a figure has no sample of it. [The control socket](control.md) tells \
                 the same figures, with their limits.\n\n{metrics}"
            ),
        ),
    ]
}

/// Returns the page with the options of `command` and its subcommands.
fn options(mut command: Command) -> String {
    // Gives each subcommand its whole name.
    command.build();
    let mut text = format!("# Options\n\n{GENERATED}\n");
    for subcommand in command.get_subcommands() {
        section(subcommand, 2, &mut text);
    }
    text
}

/// Appends a section of this `level` about `command`, then those about its subcommands. Hidden
/// commands have none, and neither has `help`.
fn section(command: &Command, level: usize, text: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_about().map(ToString::to_string);
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let heading = "#".repeat(level);
    let about = sentence(&about.unwrap_or_default());
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n{heading} `{name}`\n\n{about}\n\n```\n{usage}\n```\n"
    );
    let shown = |argument: &&Arg| !argument.is_hide_set() && argument.get_id() != "help";
    let mut before = "\n";
    for argument in command.get_arguments().filter(shown) {
        let _ = writeln!(text, "{before}{}", item(argument));
        before = "";
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(text, "\n```\n{}\n```\n", after.to_string().trim_end());
    }
    for subcommand in command.get_subcommands() {
        section(subcommand, level + 1, text);
    }
}

/// Returns the list item about an argument: its forms, its help, its values and its default.
fn item(argument: &Arg) -> String {
    let value = value_of(argument);
    let takes_value = value.is_some();
    let value = value.map_or(String::new(), |value| format!(" {value}"));
    let mut forms: Vec<String> = Vec::new();
    if let Some(short) = argument.get_short() {
        forms.push(format!("`-{short}{value}`"));
    }
    if let Some(long) = argument.get_long() {
        forms.push(format!("`--{long}{value}`"));
    }
    if forms.is_empty() {
        forms.push(format!("`{}`", value.trim()));
    }
    let mut text = format!("- {}", forms.join(", "));
    if let Some(help) = argument.get_long_help().or(argument.get_help()) {
        let _ = write!(text, ": {}", sentence(&help.to_string()));
    }
    let defaults = argument.get_default_values();
    if takes_value && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        let defaults: Vec<_> = defaults
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        let _ = write!(text, " Default: `{}`.", defaults.join(" "));
    }
    let possible = argument.get_possible_values();
    if takes_value && !argument.is_hide_possible_values_set() {
        for value in possible.iter().filter(|value| !value.is_hide_set()) {
            let _ = write!(text, "\n  - `{}`", value.get_name());
            if let Some(help) = value.get_help() {
                let _ = write!(text, ": {}", sentence(&help.to_string()));
            }
        }
    }
    text
}

/// Returns the text of a help as a paragraph of Markdown that ends with a stop.
fn sentence(help: &str) -> String {
    let words: Vec<&str> = help.split_whitespace().collect();
    let text = words.join(" ").replace('<', "&lt;").replace('*', "\\*");
    let ends = text.is_empty() || text.ends_with(['.', ':', '!', '?']);
    if ends { text } else { text + "." }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_pages_are_those_of_the_book() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for (name, text) in pages(Cli::command()) {
            let found = fs::read_to_string(docs.join(name)).expect("the page exists");
            assert!(
                found == text,
                "docs/{name} is old: `make reference` writes it"
            );
        }
    }

    #[test]
    fn each_visible_option_of_a_command_has_an_item() {
        let text = options(Cli::command());
        let mut command = Cli::command();
        command.build();
        let run = command.find_subcommand("run").expect("it exists");
        let of_run = text
            .split("\n## ")
            .find(|part| part.starts_with("`ebb run`"));
        let of_run = of_run.expect("it has a section");
        for argument in run.get_arguments().filter(|one| !one.is_hide_set()) {
            if let Some(long) = argument.get_long().filter(|long| *long != "help") {
                assert!(of_run.contains(&format!("`--{long}")), "{long}");
            }
        }
        assert!(!text.contains("ebb pages") && !text.contains("`--rm`"));
    }

    #[test]
    fn helps_are_sentences_of_markdown() {
        assert_eq!(sentence("a <b>\n c*"), "a &lt;b> c\\*.");
        assert_eq!(sentence("One."), "One.");
        assert_eq!(sentence(""), "");
    }
}
