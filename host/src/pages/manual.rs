//! Manual pages, generated from the definition of the command line: clap_mangen's, with a synopsis
//! that shows the values of options, and with examples as they were written.

use super::value::value_of;
use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::fs;
use std::io;
use std::path::Path;

/// Writes a page for `command` and for each of its subcommands that is not hidden into `folder`.
///
/// # Errors
/// Fails if a page cannot be written. Pages that were written before stay.
pub(super) fn write_all(command: Command, folder: &Path) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    // Gives each subcommand its whole name.
    command.build();
    write(&command, folder)
}

fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write(subcommand, folder)?;
    }
    let man = Man::new(command.clone());
    let name = man.get_filename();
    fs::write(folder.join(name), page(&man, command)?)
}

/// Returns the page of `command`, of which `man` was made.
fn page(man: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(is_shown) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        notes(&after.to_string()).to_writer(&mut page)?;
    }
    Ok(page)
}

fn is_shown(argument: &Arg) -> bool {
    !argument.is_hide_set()
}

/// Returns the section with the forms of the call: each option with its value, then the operands.
fn synopsis(command: &Command) -> Roff {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut text = vec![bold(name)];
    let (operands, options): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .filter(|argument| is_shown(argument))
        .partition(|argument| argument.is_positional());
    for argument in options.into_iter().chain(operands) {
        let may_be_left_out = !argument.is_required_set();
        text.push(roman(if may_be_left_out { " [" } else { " " }));
        text.extend(form(argument));
        if may_be_left_out {
            text.push(roman("]"));
        }
    }
    if command.has_subcommands() {
        text.extend([roman(" "), italic("COMMAND")]);
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(text);
    roff
}

/// Returns the name of an option or operand with that of its value.
fn form(argument: &Arg) -> Vec<Inline> {
    let mut text = Vec::new();
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    if !names.is_empty() {
        text.push(bold(names.join("|")));
    }
    if let Some(value) = value_of(argument) {
        if argument.is_last_set() {
            text.push(roman("-- "));
        } else if !names.is_empty() {
            text.push(roman(" "));
        }
        text.push(italic(value));
        let is_many = argument.get_num_args().is_some_and(|n| n.max_values() > 1);
        if argument.is_positional() && is_many {
            text.push(roman(" ..."));
        }
    }
    text
}

/// Returns the sections with the text after the help. Lines that are indented stay as they are.
fn notes(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut is_first = true;
    for paragraph in text.split("\n\n") {
        let mut lines: Vec<&str> = paragraph.lines().collect();
        let is_examples = lines.first() == Some(&"Examples:");
        if is_examples {
            roff.control("SH", ["EXAMPLES"]);
            lines.remove(0);
        } else if is_first {
            roff.control("SH", ["NOTES"]);
            is_first = false;
        } else {
            roff.control("PP", []);
        }
        let is_verbatim = lines.iter().any(|line| line.starts_with(' '));
        if is_verbatim {
            roff.control("nf", []);
        }
        for line in lines {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        if is_verbatim {
            roff.control("fi", []);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn text_of(name: &str) -> String {
        let mut command = Cli::command();
        command.build();
        let command = command.find_subcommand(name).expect("it exists").clone();
        let page = page(&Man::new(command.clone()), &command).expect("a page in memory");
        String::from_utf8(page).expect("text")
    }

    #[test]
    fn a_synopsis_shows_values_and_examples_keep_their_lines() {
        let page = text_of("reclaim");
        let value = r"[\fB\-\-guest\fR \fINAME\fR]";
        assert!(page.contains(value), "{page}");
        let (_, examples) = page.split_once(".SH EXAMPLES\n.nf\n").expect("a section");
        let (examples, rest) = examples.split_once(".fi\n").expect("it ends");
        assert_eq!(examples.lines().count(), 5, "{examples}");
        assert!(rest.contains(".SH NOTES\n"), "{rest}");
    }

    #[test]
    fn a_program_and_its_arguments_are_operands() {
        let page = text_of("run");
        assert!(page.contains(r"[\fIPROGRAM\fR ...]"), "{page}");
        let page = text_of("compare");
        assert!(page.contains(r"[\-\- \fIPROGRAM\fR ...]"), "{page}");
    }
}
