//! Hints that ebb adds to errors of usage, above all for words that users of containers know.

use crate::failure::Failure;
use crate::text::{printable_lines, stderr, steers};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::error::Error as _;
use std::io;

/// Options of other tools that run programs, each with the equivalent of `ebb`.
const OPTIONS: [(&[&str], &str); 8] = [
    (
        &["-d", "--detach"],
        "`ebb run … &` runs it in the background; `ebb top` shows it there",
    ),
    (
        &["--mount"],
        "`--volume SRC:DST` shows a folder of the host that the guest changes, `--root DIR` one as its root, \
         `--file SRC:/DEST` packs a copy",
    ),
    (
        &["-p", "--publish", "--network", "--net", "--dns", "--link"],
        "guests have the loopback interface and no other network",
    ),
    (
        &["--privileged", "--cap-add", "--cap-drop", "--security-opt"],
        "leave it out: the program is root in a kernel of its own",
    ),
    (
        &["--entrypoint", "--image"],
        "`--root IMAGE.tar` takes an image that `docker save` wrote; PROGRAM is run in the place of its own",
    ),
    (
        &["--memory-swap", "--memory-limit", "--mem"],
        "`-m SIZE` is all the memory that the guest has",
    ),
    (
        &["--cpuset-cpus", "--cpu-shares"],
        "`-c N` sets the guest's CPUs; `taskset` before `ebb` says which of the host's run them",
    ),
    (
        &["--restart", "--init", "--pull", "--attach", "-a"],
        "leave it out: there is nothing like it here",
    ),
];

/// Commands of such tools, each with the equivalent of `ebb`.
const COMMANDS: [(&[&str], &str); 4] = [
    (
        &["ps", "ls", "list", "stats"],
        "`ebb top` shows the guests that run, `ebb top --once` prints them",
    ),
    (
        &["stop", "kill", "rm"],
        "a guest ends with its `ebb run`: send that SIGTERM, as `kill` does",
    ),
    (
        &["exec", "attach", "logs", "create", "start"],
        "a guest runs one program, and `ebb run` carries its streams as a pipe would",
    ),
    (
        &["pull", "build", "images"],
        "`ebb run --root IMAGE.tar` takes an image that `docker save` wrote; ebb fetches and makes none",
    ),
];

/// Returns `error`, an error of clap, with a hint of ebb's own if the user gave an option or
/// command that other tools have. The hint then replaces clap's suggestions. Errors other than
/// unknown arguments and unknown subcommands stay unchanged.
pub(crate) fn add(mut error: Error) -> Error {
    let (subject, known) = match error.kind() {
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, OPTIONS.as_slice()),
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, COMMANDS.as_slice()),
        _ => return error,
    };
    let Some(ContextValue::String(word)) = error.get(subject) else {
        return error;
    };
    let hint = hint(word, known).map(str::to_owned);
    let hint = hint.or_else(|| {
        // The user probably left out `run`.
        let program = subject == ContextKind::InvalidSubcommand && word.contains('/');
        program.then(|| format!("`ebb run -- {word}` runs a program"))
    });
    // clap suggests `-- --option`, which would make the option the program's name.
    error.remove(ContextKind::Suggested);
    if let Some(hint) = hint {
        // A similar spelling does not mean a similar meaning: `-e` has nothing to do with `-m`.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        let hints = ContextValue::StyledStrs(vec![StyledStr::from(hint)]);
        error.insert(ContextKind::Suggested, hints);
    }
    error
}

/// Prints the text of a clap error: help and version on stdout, errors of usage on stderr. If the
/// text contains control characters of the command line or the environment, prints it on stderr
/// without them and without styles. Does not exit. Fails with [`Failure::Output`] if stdout cannot
/// be written to. A closed pipe is no failure, and neither are errors of stderr.
pub(crate) fn print(error: &Error) -> Result<(), Failure> {
    // clap's text also contains the name by which ebb was called.
    let name = std::env::args_os().next().unwrap_or_default();
    if !is_harmless(&name.to_string_lossy()) || !is_ours(error) {
        stderr::say(plain(error).trim_end());
        return Ok(());
    }
    // The text ends with a line feed, so all of it has been written or has failed.
    match error.print() {
        // A closed stream is no failure, because there is no reader.
        Err(source) if !error.use_stderr() && source.kind() != io::ErrorKind::BrokenPipe => {
            let stream = "stdout";
            Err(Failure::Output { stream, source })
        }
        _ => Ok(()),
    }
}

/// Returns the text of an error without styles. It contains no control characters but newlines.
fn plain(error: &Error) -> String {
    printable_lines(&error.render().to_string())
}

/// Returns whether an error contains no control character of the command line or the environment.
/// clap puts such words into errors, between its own styles.
fn is_ours(error: &Error) -> bool {
    let of_source = error
        .source()
        .is_none_or(|why| is_harmless(&why.to_string()));
    of_source
        && error.context().all(|(_, value)| match value {
            ContextValue::String(word) => is_harmless(word),
            ContextValue::Strings(words) => words.iter().all(|word| is_harmless(word)),
            _ => true,
        })
}

fn is_harmless(text: &str) -> bool {
    !text.chars().any(|c| steers(c) && c != '\n')
}

fn hint(word: &str, known: &[(&[&str], &'static str)]) -> Option<&'static str> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    known
        .iter()
        .find_map(|(names, hint)| names.contains(&name).then_some(*hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::text::hostile::{HOSTILE, assert_harmless};
    use clap::{CommandFactory, Parser};

    fn said(words: &[&str]) -> String {
        let words = ["ebb"].iter().chain(words);
        let error = Cli::try_parse_from(words).expect_err("it is refused");
        add(error).to_string()
    }

    #[test]
    fn words_of_containers_get_a_hint() {
        for (names, hint) in OPTIONS {
            for name in names {
                let text = said(&["run", name, "x", "--", "./program"]);
                assert!(text.contains(hint), "{name}: {text}");
                assert!(!text.contains("as a value"), "{name}: {text}");
            }
        }
        for (names, hint) in COMMANDS {
            for name in names {
                let text = said(&[name]);
                assert!(text.contains(hint), "{name}: {text}");
            }
        }
        assert!(said(&["./program"]).contains("ebb run -- ./program"));
    }

    #[test]
    fn words_steer_no_terminal() {
        for words in [
            &[HOSTILE][..],
            &["run", &format!("--{HOSTILE}"), "--", "x"],
            &["run", "-m", HOSTILE, "--", "x"],
            &["run", "--name", HOSTILE, "--", "x"],
            &["set", &format!("{HOSTILE}=1")],
            &["set", HOSTILE],
            &["compare", "--variant", HOSTILE],
            &["top", "--sort", HOSTILE],
            &["metrics", "--listen", HOSTILE],
            &["blk", HOSTILE],
        ] {
            let words = ["ebb"].iter().chain(words);
            let Err(error) = Cli::try_parse_from(words) else {
                continue;
            };
            let error = add(error);
            assert!(!is_ours(&error), "{error:?}");
            assert_harmless(&plain(&error));
        }
        let error = Cli::try_parse_from(["ebb", "run", "--memroy"]).expect_err("it is refused");
        assert!(is_ours(&add(error)));
    }

    #[test]
    fn what_ebb_knows_needs_no_hint() {
        let command = Cli::command();
        for sub in command.get_subcommands() {
            for (names, _) in COMMANDS {
                assert!(!names.contains(&sub.get_name()));
            }
        }
        let run = command.find_subcommand("run").expect("ebb run");
        for argument in run.get_arguments() {
            let long = argument.get_long().map(|name| format!("--{name}"));
            let short = argument.get_short().map(|name| format!("-{name}"));
            for name in long.into_iter().chain(short) {
                assert_eq!(hint(&name, &OPTIONS), None, "{name}");
            }
        }
    }

    #[test]
    fn a_slip_is_answered_with_what_is_near() {
        for (words, near) in [
            (["run", "--timout", "5", "--", "./x"], "--timeout"),
            (["run", "--memroy", "2G", "--", "./x"], "--memory"),
            (["top", "--onec", "--json", "--sort", "gap"], "--once"),
            (["metrics", "--lisen", "x", "--once", "x"], "--listen"),
            (["set", "--gest", "x", "give-back=off", "x"], "--guest"),
        ] {
            let text = said(&words);
            assert!(text.contains(near), "{text}");
            assert!(!text.contains("as a value"), "{text}");
        }
    }
}
