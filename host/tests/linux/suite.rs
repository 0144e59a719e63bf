//! Runs many programs in one guest: a script runs them one after the other and prints the result of
//! each.
//!
//! If a guest dies, the program that ran then has failed. The rest runs in the next guest.

use crate::native::Deed;
use crate::scratch::Scratch;
use crate::{ebb, programs};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The time limit for one program in a guest. It ends a program that hangs and is long enough for a
/// busy host.
const PROGRAM_SECONDS: u32 = 600;
/// The time limit for one guest.
const GUEST_SECONDS: u32 = 3600;
/// The largest number of guests for one suite.
const GUESTS_MAX: usize = 6;

/// A program with its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The path of a static program, or busybox with a script.
    pub(crate) program: PathBuf,
    pub(crate) words: Vec<String>,
    /// A script that is copied to `script.sh` in the program's folder.
    pub(crate) script: Option<PathBuf>,
}

/// The result of each case in a guest, or the reason why there is none.
pub(crate) type Deeds = BTreeMap<String, Result<Deed, String>>;

const DRIVER: &str = r#"
for each in $busy; do
    while :; do :; done &
done
n=0
while read -r name seconds command; do
    n=$((n + 1))
    mkdir /tmp/w && cd /tmp/w
    [ -f "/cases/$name.sh" ] && cp "/cases/$name.sh" script.sh
    echo "@@ start $name"
    env -i PATH=/bin HOME=/ timeout -s KILL $seconds sh -c "exec $command" < /dev/null > /tmp/out 2> /tmp/err
    status=$?
    cd /tmp
    echo "@@ end $name $status $(wc -c < /tmp/out) $(wc -c < /tmp/err)"
    cat /tmp/out /tmp/err
    echo
    rm -rf /tmp/w /tmp/out /tmp/err
done < /cases/list
echo "@@ all"
"#;

/// Runs all cases in guests with these options.
pub(crate) fn run(options: &[&str], cases: &[Case]) -> Deeds {
    let mut deeds = Deeds::new();
    for _ in 0..GUESTS_MAX {
        let left: Vec<&Case> = cases
            .iter()
            .filter(|c| !deeds.contains_key(&c.name))
            .collect();
        if left.is_empty() {
            break;
        }
        one_guest(options, &left, &mut deeds);
    }
    for case in cases {
        deeds
            .entry(case.name.clone())
            .or_insert_with(|| Err(format!("not run: {GUESTS_MAX} guests died before it")));
    }
    deeds
}

fn one_guest(options: &[&str], cases: &[&Case], deeds: &mut Deeds) {
    let folder = Scratch::new("suite");
    let mut list = String::new();
    let mut command = ebb::command(GUEST_SECONDS, options);
    command.arg("--busybox");
    let mut pack = |source: &Path, path: &str| {
        command
            .arg("--file")
            .arg(format!("{}:{path}", programs::text(source)));
    };
    for case in cases {
        let name = &case.name;
        let program = case
            .program
            .file_name()
            .expect("a file has a name")
            .to_string_lossy();
        let path = if program == "busybox" {
            "/bin/busybox".to_owned()
        } else {
            let path = format!("/cases/{program}");
            pack(&case.program, &path);
            path
        };
        if let Some(script) = &case.script {
            pack(script, &format!("/cases/{name}.sh"));
        }
        list.push_str(&format!(
            "{name} {PROGRAM_SECONDS} {path} {}\n",
            case.words.join(" ")
        ));
    }
    pack(Path::new(&folder.write("list", list)), "/cases/list");
    // For development: EBB_TEST_BUSY="1 2 3" runs three busy loops beside the programs, in the
    // guest.
    let busy = std::env::var("EBB_TEST_BUSY").unwrap_or_default();
    let driver = folder.write("driver.sh", format!("#!/bin/sh\nbusy='{busy}'\n{DRIVER}"));
    command.arg("--").arg(driver);
    let outcome = ebb::finish(&mut command);
    let before = deeds.len();
    read(&outcome.stdout, deeds);
    if deeds.len() < before + cases.len() {
        // The program that ran when the guest died, or the first one if none ran.
        let out = outcome.out();
        let last = out
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("@@ start "));
        let name = last.unwrap_or(&cases[0].name).to_owned();
        let why = format!(
            "the guest ended with {} while {name} ran\n{}",
            outcome.status,
            ebb::tail(&outcome.err())
        );
        deeds.entry(name).or_insert(Err(why));
    }
}

/// Reads the driver's output. Lengths in it show where each program's output ends.
fn read(mut bytes: &[u8], deeds: &mut Deeds) {
    while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes = &bytes[end + 1..];
        let words: Vec<&str> = line.split(' ').collect();
        let ["@@", "end", name, status, out, err] = words[..] else {
            continue;
        };
        let (Ok(status), Ok(out), Ok(err)) =
            (status.parse(), out.parse::<usize>(), err.parse::<usize>())
        else {
            continue;
        };
        if bytes.len() < out + err {
            return;
        }
        let deed = Deed {
            status,
            stdout: bytes[..out].to_vec(),
            stderr: bytes[out..out + err].to_vec(),
        };
        bytes = &bytes[out + err..];
        deeds.insert(name.to_owned(), Ok(deed));
    }
}
