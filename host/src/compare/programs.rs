//! The experiments that run unmodified programs of the host: `ebb compare programs`.

use super::experiment::{BootWords, Experiment, ExperimentProgram, Pace, Scope};
use super::give_back_mode::GiveBackMode;
use super::program::Program;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns no files, for a program that only needs its libraries.
fn alone(_: &Path) -> Vec<PathBuf> {
    Vec::new()
}

/// Returns Python's module folder, which is `/usr/lib/python3.11` for `/usr/bin/python3.11`.
fn modules(python: &Path) -> Vec<PathBuf> {
    let folder = python
        .file_name()
        .map(|name| Path::new("/usr/lib").join(name));
    folder.into_iter().collect()
}

/// Returns the programs that the shell's script runs.
fn tools(_: &Path) -> Vec<PathBuf> {
    ["/usr/bin/true", "/usr/bin/seq", "/usr/bin/wc"]
        .map(PathBuf::from)
        .to_vec()
}

/// Returns the folder of Java's runtime, which contains `bin/java`, and the folders with its
/// settings.
fn runtime(java: &Path) -> Vec<PathBuf> {
    let home = java.parent().and_then(Path::parent).map(Path::to_owned);
    // Links in the runtime's folder lead there.
    let settings = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let settings = settings
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("java-"))
        .map(|entry| entry.path());
    home.into_iter().chain(settings).collect()
}

/// Returns the programs that the script and the compiler's driver run, and the folder of its
/// headers. The driver itself names them.
fn passes(gcc: &Path) -> Vec<PathBuf> {
    ["prog-name=cc1", "prog-name=as", "file-name=include"]
        .iter()
        .filter_map(|wanted| {
            let answer = Command::new(gcc)
                .arg(format!("-print-{wanted}"))
                .stdin(Stdio::null())
                .output()
                .ok()?;
            let said = String::from_utf8(answer.stdout).ok()?;
            let path = Path::new(said.trim());
            let found = if path.is_absolute() {
                path.to_owned()
            } else {
                Path::new("/usr/bin").join(path)
            };
            Some(found)
        })
        .chain([PathBuf::from("/usr/bin/seq")])
        .collect()
}

const PYTHON: &str = "/usr/bin/python3";

static PYTHON_STARTS: Program = Program {
    path: PYTHON,
    files: modules,
    script: "",
    arguments: &["-c", "print(1)"],
    says: "1",
};
static PYTHON_FILLS: Program = Program {
    path: PYTHON,
    files: modules,
    script: "",
    arguments: &[
        "-c",
        "d = {str(i): [i] * 4 for i in range(200000)}; print(sum(v[3] for v in d.values()))",
    ],
    says: "19999900000",
};
static SHELL: Program = Program {
    path: "/bin/dash",
    files: tools,
    script: "",
    arguments: &[
        "-c",
        "for i in $(/usr/bin/seq 300); do /usr/bin/true; echo $i; done | /usr/bin/wc -l",
    ],
    says: "300",
};
static PERL: Program = Program {
    path: "/usr/bin/perl",
    files: alone,
    script: "",
    arguments: &[
        "-e",
        "my %h; $h{$_} = $_ for 1..100000; my $s = 0; $s += $_ for values %h; print $s",
    ],
    says: "5000050000",
};
static SQLITE: Program = Program {
    path: "/usr/bin/sqlite3",
    files: alone,
    script: "",
    arguments: &[
        "/tmp/db",
        "create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < 30000) \
         insert into t select x, hex(x) from c; create index i on t(b); select count(*), sum(a) from t where b > 0;",
    ],
    says: "30000|450015000",
};
/// The program for builds of `elasticity`: four compilers at once, each with a large table like
/// that of a generated parser, and some functions. Compilers use more memory than the guest does
/// without them. Its output is not checked.
pub(super) static COMPILE: Program = Program {
    path: "/usr/bin/gcc",
    files: passes,
    script: "for j in 1 2 3 4; do { echo \"int t$j[] = {\"; /usr/bin/seq -s, $j 100000; echo '};'; \
             for i in $(/usr/bin/seq 10); do \
             echo \"int f$i(int n) { int s = 0; for (int k = 0; k < n; k++) s += k * t$j[$i]; return s; }\"; \
             done; } > /tmp/f$j.c; \"$0\" -O1 -c -o /tmp/f$j.o /tmp/f$j.c & done; wait; \
             for j in 1 2 3 4; do test -s /tmp/f$j.o || exit 1; : > /tmp/f$j.c; : > /tmp/f$j.o; done",
    arguments: &[],
    says: "",
};
static GCC: Program = Program {
    path: "/usr/bin/gcc",
    files: passes,
    script: "for i in $(/usr/bin/seq 100); do \
             echo \"int f$i(int n) { int s = 0; for (int k = 0; k < n; k++) s += k * $i; return s; }\"; \
             done > /tmp/f.c; \"$0\" -O2 -c -o /tmp/f.o /tmp/f.c && echo done",
    arguments: &[],
    says: "done",
};
static NODE: Program = Program {
    path: "/usr/bin/node",
    files: alone,
    script: "",
    arguments: &[
        "-e",
        "const a = []; for (let i = 0; i < 200000; i++) a.push({ i, s: String(i) }); \
         console.log(a.reduce((sum, one) => sum + one.s.length, 0))",
    ],
    says: "1088890",
};
static JAVA: Program = Program {
    path: "/usr/bin/java",
    files: runtime,
    script: "",
    arguments: &["-Xmx256m", "-XX:+UseSerialGC", "--version"],
    says: "",
};

/// Defines an experiment that runs a program of the host.
const fn part(name: &'static str, summary: &'static str, program: ExperimentProgram) -> Experiment {
    Experiment {
        name,
        pace: Pace::Apart,
        summary,
        usual: false,
        memory_mib: &[1024],
        cpus: &[1],
        seconds: 4.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: || vec![GiveBackMode::REPORTING],
            rounds: 3,
        },
        program,
    }
}

/// The experiments of `ebb compare programs`, in the order of `--list`. Some run the same program
/// with other arguments.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    part(
        "programs/python",
        "python3 starts and prints a number",
        ExperimentProgram::Program(&PYTHON_STARTS),
    ),
    part(
        "programs/python-fills",
        "python3 fills a dictionary with 200,000 lists",
        ExperimentProgram::Program(&PYTHON_FILLS),
    ),
    part(
        "programs/shell",
        "dash starts 300 processes in a pipeline",
        ExperimentProgram::Program(&SHELL),
    ),
    part(
        "programs/perl",
        "perl fills a hash with 100,000 numbers",
        ExperimentProgram::Program(&PERL),
    ),
    part(
        "programs/sqlite",
        "sqlite3 fills a table of 30,000 rows in a file, and an index",
        ExperimentProgram::Program(&SQLITE),
    ),
    part(
        "programs/gcc",
        "gcc compiles 100 functions",
        ExperimentProgram::Program(&GCC),
    ),
    part(
        "programs/node",
        "node starts and makes 200,000 objects",
        ExperimentProgram::Program(&NODE),
    ),
    part(
        "programs/java",
        "java starts and tells its version",
        ExperimentProgram::Program(&JAVA),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_packed_without_links() {
        let shell = std::fs::canonicalize("/bin/dash").expect("every Debian has it");
        assert_eq!(SHELL.files()[0], shell);
        assert!(SHELL.words().contains(&shell.display().to_string()));
        assert_eq!(SHELL.words()[..3], ["program", "--says", "300"]);
    }
}
