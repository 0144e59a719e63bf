//! `program`: runs a program unchanged and measures its time.

use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use crate::{Experiment, Failure};
use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The experiment `program`, with its arguments, help text and function: runs a program unchanged
/// and measures its time.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "program",
    usage: "[--says TEXT] -- PROGRAM [ARGUMENTS]",
    summary: "run a program, and say what it took",
    help: "\
PROGRAM is a path, or a name that is looked for in PATH. Its standard input is empty. With TEXT it has to
print that, spaces and newlines at both ends aside; what it prints on standard error is passed on.

Prints the phases start, answered, when its first output came, and over, a moment after its end, and the time from the call to
its end (program_s).",
    run,
};

/// The largest output that is read, in bytes. A program that prints more is not the intended one.
const OUTPUT_MAX: u64 = 1 << 20;
/// Time after the program's end for the guest to free its memory.
const SETTLE: Duration = Duration::from_millis(300);

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let at = words.iter().position(|word| word == "--");
    let command = at.map(|at| words.split_off(at)).unwrap_or_default();
    let wanted = match words.as_slice() {
        [] => None,
        [option, text] if option == "--says" => Some(text),
        [word, ..] => {
            return Err(Failure::Usage(format!("{word:?} is no argument of it")));
        }
    };
    let [_, name, arguments @ ..] = command.as_slice() else {
        return Err(Failure::Usage("which program? It stands behind --".into()));
    };
    out.phase("start", None)?;
    let since = monotonic_ns();
    let mut child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::Unsupported(format!("there is no {name}")),
            _ => Failure::system(name.clone())(error),
        })?;
    let said = read(&mut child, out)?;
    let status = child.wait().map_err(Failure::system("wait"))?;
    let until = monotonic_ns();
    if !status.success() {
        return Err(Failure::Wrong(format!("{name} ended with {status}")));
    }
    let said = String::from_utf8_lossy(&said);
    if wanted.is_some_and(|wanted| said.trim() != wanted.trim()) {
        let (said, wanted) = (said.trim(), wanted.map(|text| text.trim()));
        return Err(Failure::Wrong(format!(
            "{name} printed {said:?} instead of {wanted:?}"
        )));
    }
    out.result(&Metric {
        name: "program_s",
        value: ratio(until - since, 1_000_000_000),
        unit: "s",
        better: Better::Lower,
        labels: Labels::new(),
    })?;
    std::thread::sleep(SETTLE);
    out.phase("over", None)
}

/// Reads the program's output to its end. Prints the phase `answered` at the first byte.
fn read(child: &mut Child, out: &mut Output) -> Result<Vec<u8>, Failure> {
    let mut said = Vec::new();
    let Some(mut pipe) = child.stdout.take() else {
        return Ok(said);
    };
    let mut first = [0; 1];
    if pipe.read_exact(&mut first).is_err() {
        return Ok(said);
    }
    out.phase("answered", None)?;
    said.extend(first);
    pipe.take(OUTPUT_MAX)
        .read_to_end(&mut said)
        .map_err(Failure::system("read what the program prints"))?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, Pace};

    fn call(words: &[&str]) -> Result<(), Failure> {
        let mut out = Output::new("program", Format::Text, Pace::Own);
        run(
            words.iter().map(|word| (*word).to_owned()).collect(),
            &mut out,
        )
    }

    #[test]
    fn the_program_has_to_say_what_is_wanted() {
        call(&["--says", "a b", "--", "echo", "a", "b"]).expect("it says so");
        call(&["--", "true"]).expect("it need not say anything");
        for (words, why) in [
            (&["--says", "a", "--", "echo", "b"][..], "printed"),
            (&["--", "false"], "ended with"),
            (&["--", "/no/such/program"], "unsupported: there is no"),
            (&["--says", "a"], "which program"),
            (&["--speed", "--", "true"], "--speed"),
            (&["--"], "which program"),
        ] {
            let failure = call(words).expect_err("it must fail");
            assert!(failure.to_string().contains(why), "{words:?}: {failure}");
        }
    }
}
