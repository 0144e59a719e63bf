//! Calls of the program: arguments, text, JSON, exit statuses. Everything runs natively and small,
//! so the tests check the form of the figures and never their size.

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// Every experiment, with arguments that make it short.
const SHORT: [&[&str]; 36] = [
    &["memhog", "2M", "0", "0"],
    &["page-fault", "4k", "1", "1r"],
    &["page-fault", "4k", "2", "1r", "--threads"],
    &["page-fault", "thp", "2", "1r"],
    &["page-fault", "file", "1", "0.01"],
    &["swap-pressure", "3M", "0"],
    &["fragment", "8M", "0"],
    &["fragment", "1%", "0"],
    &["fragment", "8M", "0", "--", "huge-latency", "4M"],
    &["huge-latency", "4M"],
    &["latency", "4M", "1"],
    &["heap", "4M"],
    &["holes", "/dev/shm", "4M", "2"],
    &["hugetlb", "1"],
    &["pin", "1M", "2r"],
    &["pin", "4M", "1r", "--thp"],
    &["pin", "1M", "2r", "--hold"],
    &["messaging", "1", "2r"],
    &["messaging", "1", "2r", "--threads"],
    &["stream", "1r"],
    &["stream", "1r", "--tcp"],
    &["scale", "areas", "20", "40"],
    &["scale", "children", "2", "4"],
    &["scale", "mappers", "2"],
    &["scale", "threads", "2"],
    &["scale", "waiters", "2"],
    &["scale", "timers", "2"],
    &["scale", "descriptors", "2"],
    &["scale", "directory", "2"],
    &["scale", "procfs", "2"],
    &["parallel", "dup", "2", "2r"],
    &["parallel", "open", "2", "0.01"],
    &["parallel", "switch"],
    &["parallel", "poll-128", "1", "2r"],
    &[
        "disk",
        concat!(env!("CARGO_TARGET_TMPDIR"), "/disk.img"),
        "1r",
    ],
    &["idle", "0"],
];

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb-workloads"));
    command.stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    make_disk();
    program().args(words).output().expect("the program starts")
}

/// Creates the file that `disk` reads where a test has no disk.
fn make_disk() {
    static MADE: std::sync::Once = std::sync::Once::new();
    MADE.call_once(|| {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/disk.img");
        std::fs::write(path, vec![1; 256 << 10]).expect("a writable place");
    });
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn events(output: &Output) -> Vec<Value> {
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}")))
        .collect()
}

fn kind(event: &Value) -> &str {
    event["event"].as_str().expect("each event says what it is")
}

/// Returns whether the machine may lack something that this experiment needs, such as huge pages.
fn may_be_missing(words: &[&str]) -> bool {
    words
        .iter()
        .any(|word| ["thp", "--thp", "huge-latency", "heap", "hugetlb", "disk"].contains(word))
}

#[test]
fn each_experiment_prints_events_that_hold_what_was_promised() {
    let doc = include_str!("../../docs/compare.md");
    make_disk();
    for words in SHORT {
        let output = program().arg("--json").args(words).output().expect("runs");
        let events = events(&output);
        if output.status.code() == Some(3) && may_be_missing(words) {
            let last = events.last().expect("an event says what is missing");
            assert_eq!(kind(last), "unsupported", "{words:?}");
            assert!(last["what"].as_str().is_some_and(|what| !what.is_empty()));
            continue;
        }
        if words[0] == "hugetlb" && !output.status.success() {
            let said = text(&output.stderr);
            assert!(
                said.contains("nr_hugepages") || said.contains("huge pages"),
                "{said}"
            );
            continue;
        }
        assert!(
            output.status.success(),
            "{words:?}: {} {}",
            output.status,
            text(&output.stderr)
        );
        let mut last_s = 0.0;
        let mut figures = 0;
        for event in &events {
            match kind(event) {
                "phase" => {
                    let at_s = event["at_s"].as_f64().expect("a time");
                    assert!(at_s >= last_s, "{words:?}: time goes back");
                    last_s = at_s;
                    assert!(event["name"].is_string());
                    figures += 1;
                }
                "result" => {
                    assert!(event["value"].is_number(), "{event}");
                    assert!(event["unit"].is_string(), "{event}");
                    assert!(["higher", "lower"].contains(&event["better"].as_str().expect("text")));
                    assert!(
                        event["labels"]
                            .as_object()
                            .expect("labels")
                            .values()
                            .all(Value::is_string)
                    );
                    figures += 1;
                }
                "distribution" => {
                    let pairs = event["percentiles"].as_array().expect("pairs");
                    let at = |n: usize| {
                        pairs
                            .iter()
                            .map(move |pair| pair[n].as_u64().expect("number"))
                    };
                    assert!(at(0).is_sorted() && at(1).is_sorted(), "{event}");
                    assert_eq!(at(0).next_back(), Some(100));
                    assert!(event["count"].as_u64().is_some_and(|count| count > 0));
                    figures += 1;
                }
                other => panic!("{words:?}: event {other:?}"),
            }
            if let Some(metric) = event["metric"].as_str() {
                assert!(
                    doc.contains(&format!("`{metric}`")),
                    "{metric} is not in docs/compare.md"
                );
            }
        }
        assert!(figures > 0, "{words:?} printed nothing");
    }
}

#[test]
fn people_get_lines_that_begin_with_the_experiment() {
    for words in SHORT.iter().filter(|words| !may_be_missing(words)) {
        let output = run(words);
        assert!(
            output.status.success(),
            "{words:?}: {}",
            text(&output.stderr)
        );
        let said = text(&output.stdout);
        assert!(!said.is_empty(), "{words:?}");
        let prefix = format!("{}: ", words[0]);
        assert!(said.lines().all(|line| line.starts_with(&prefix)), "{said}");
    }
}

#[test]
fn a_line_is_a_turn_and_the_end_of_lines_the_end() {
    let with_lines = |words: &[&str], lines: &str| -> (Option<i32>, Vec<String>) {
        let mut child = program()
            .args(["--json", "--turns"])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(lines.as_bytes()).expect("a few bytes");
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        let names = events(&output)
            .iter()
            .map(|event| event["name"].as_str().or(event["metric"].as_str()))
            .map(|name| name.expect("a phase or a figure").to_owned())
            .collect();
        (output.status.code(), names)
    };
    assert_eq!(
        with_lines(&["idle", "0"], ""),
        (Some(0), vec!["turn".to_owned()])
    );
    let twice = ["turn", "ready_s", "turn", "ready_s", "turn"].map(str::to_owned);
    assert_eq!(
        with_lines(&["idle", "0"], "\n\n"),
        (Some(0), twice.to_vec())
    );
    // memhog has eight parts, with a rest between two parts and one before it holds.
    let (status, names) = with_lines(&["memhog", "8M", "0", "0"], &"\n".repeat(9));
    assert_eq!(status, Some(0));
    assert_eq!(names.iter().filter(|name| *name == "rest").count(), 8);
    assert_eq!(names.iter().filter(|name| *name == "end").count(), 1);
    assert_eq!(names.last().map(String::as_str), Some("turn"));
    // A round has four rests. Two processes make them together.
    for tasks in ["1", "2"] {
        let (status, names) = with_lines(&["page-fault", "4k", tasks, "2r"], &"\n".repeat(9));
        assert_eq!(status, Some(0));
        assert_eq!(names.iter().filter(|name| *name == "rest").count(), 8);
        assert!(names.iter().any(|name| name == "faults_per_second"));
        let (status, _) = with_lines(&["page-fault", "4k", tasks, "2r"], "\n\n\n");
        assert_eq!(status, Some(1));
    }
    // The program fails if standard input ends in the middle of a run.
    let (status, _) = with_lines(&["memhog", "8M", "0", "0"], "\n\n");
    assert_eq!(status, Some(1));
}

#[test]
fn rates_count_the_work_that_was_asked_for() {
    let one = |words: &[&str], metric: &str| -> Value {
        let output = program().arg("--json").args(words).output().expect("runs");
        events(&output)
            .into_iter()
            .find(|event| event["metric"] == metric)
            .unwrap_or_else(|| panic!("{words:?}: no {metric}"))
    };
    let faults = one(&["page-fault", "4k", "2", "1r"], "faults_per_second");
    assert_eq!(faults["labels"]["kind"], "processes");
    assert_eq!(faults["labels"]["tasks"], "2");
    let each = one(
        &["page-fault", "4k", "2", "1r", "--threads"],
        "faults_per_second_per_task",
    );
    assert_eq!(each["labels"]["kind"], "threads");
    let said = run(&["stream", "2r"]);
    assert!(
        text(&said.stdout).contains("33554432 bytes in"),
        "{}",
        text(&said.stdout)
    );
    let said = run(&["page-fault", "4k", "1", "2r"]);
    assert!(
        text(&said.stdout).contains("task 0: 65536 faults"),
        "{}",
        text(&said.stdout)
    );
    let over: BTreeSet<String> = events(
        &program()
            .args(["--json", "messaging", "1", "1r"])
            .output()
            .expect("runs"),
    )
    .iter()
    .map(|event| event["labels"]["over"].to_string())
    .collect();
    assert_eq!(over.len(), 2, "{over:?}");
}

#[test]
fn wrong_calls_are_refused_with_the_value_and_the_usage() {
    for (words, named) in [
        (&["nothing"][..], "\"nothing\""),
        (&["memhog", "1X"], "\"1X\""),
        (&["memhog", "1M", "-1"], "\"-1\""),
        (&["memhog", "1M", "0", "0", "5"], "\"5\" is no number"),
        (&["memhog", "1M", "0", "0", "2r", "0"], "5 arguments"),
        (&["memhog", "1M", "0", "0", "2r", "--count"], "--count"),
        (&["page-fault", "8k"], "\"8k\""),
        (&["page-fault", "4k", "0"], "\"0\""),
        (&["page-fault", "4k", "257"], "\"257\""),
        (&["page-fault", "4k", "1", "0r"], "\"0r\""),
        (&["page-fault", "--processes"], "\"--processes\""),
        (&["swap-pressure", "0"], "\"0\""),
        (&["fragment", "8M", "x"], "\"x\""),
        (&["fragment", "99%"], "\"99\""),
        (&["fragment", "8M", "--"], "--"),
        (&["fragment", "8M", "--", "ls"], "\"ls\""),
        (&["huge-latency", ""], "\"\""),
        (&["heap", "1e9"], "\"1e9\""),
        (&["hugetlb", "0"], "\"0\""),
        (&["pin", "1M", "1s"], "\"1s\""),
        (&["pin", "1M", "1r", "--thp", "--1g"], "--thp and --1g"),
        (&["hugetlb", "all", "--each"], "--each"),
        (&["messaging", "0"], "\"0\""),
        (&["messaging", "1", "5"], "rounds"),
        (&["stream", "0"], "\"0\""),
        (&["scale", "files"], "\"files\""),
        (&["scale", "areas", "0"], "\"0\""),
        (&["scale", "children", "10", "20001"], "\"20001\""),
        (&["parallel"], "dup"),
        (&["parallel", "sleep"], "\"sleep\""),
        (&["parallel", "dup", "0"], "\"0\""),
        (&["disk", "/dev/null", "0"], "\"0\""),
        (&["disk", "/dev/null", "1r", "2"], "3 arguments"),
        (&["idle", "100000"], "\"100000\""),
        (&[], "usage"),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said = text(&output.stderr);
        assert!(said.contains(named), "{words:?}: {said}");
        assert!(said.contains("usage: ebb-workloads"), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn a_call_that_the_kernel_lacks_is_unsupported_and_no_failure() {
    let mut command = program();
    command.args(["--json", "pin", "1M", "1r"]);
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(without_process_vm_readv) };
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let expected = serde_json::json!({"event": "unsupported", "what": "process_vm_readv"});
    assert_eq!(events(&output), [expected]);
    assert!(text(&output.stderr).contains("unsupported: process_vm_readv"));
}

/// Makes the kernel answer `ENOSYS` to this one call, for this process and the program that it
/// executes.
fn without_process_vm_readv() -> std::io::Result<()> {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).expect("16-bit codes"),
        jt,
        jf,
        k,
    };
    let call = u32::try_from(libc::SYS_process_vm_readv).expect("a small number");
    let enosys = libc::ENOSYS.unsigned_abs();
    let mut filter = [
        // A filter's input begins with the number of the call.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | enosys,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the calls take numbers, and a filter that outlives them.
    let status = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[test]
fn help_is_for_everything_and_succeeds() {
    let output = run(&["--help"]);
    assert!(output.status.success());
    let overview = text(&output.stdout).to_owned();
    let names: BTreeSet<&str> = SHORT.iter().map(|words| words[0]).collect();
    for name in names {
        assert!(overview.contains(&format!("  {name} ")), "{name}");
        let output = run(&[name, "--help"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).starts_with(&format!("usage: ebb-workloads [--json] {name}")));
    }
}

#[test]
fn a_link_with_an_experiments_name_runs_it() {
    let folder = std::env::temp_dir().join(format!("ebb-workloads-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let link = folder.join("idle");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ebb-workloads"), &link).expect("a link");
    let output = Command::new(&link).args(["0", "--json"]).output();
    std::fs::remove_dir_all(&folder).expect("our own folder");
    let output = output.expect("the link starts");
    assert!(output.status.success());
    assert_eq!(events(&output)[0]["metric"], "ready_s");
}
