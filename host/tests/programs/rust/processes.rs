//! Tests child processes with the standard library.
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

fn role(name: &str) {
    match name {
        "echo" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).expect("UTF-8");
            print!("{}", text.to_uppercase());
            eprintln!("{} bytes", text.len());
        }
        "environment" => {
            let mut all: Vec<_> = env::vars().collect();
            all.sort();
            println!("{all:?} {:?}", env::args().skip(2).collect::<Vec<_>>());
            println!("{}", env::current_dir().expect("a folder").display());
        }
        "status" => std::process::exit(env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(1)),
        "abort" => std::process::abort(),
        "panic" => panic!("told to"),
        "sleep" => thread::sleep(Duration::from_secs(100)),
        "lines" => {
            for line in std::io::stdin().lock().lines() {
                println!("got {}", line.expect("UTF-8"));
            }
        }
        "much" => {
            let block = vec![b'x'; 1 << 20];
            for _ in 0..4 {
                std::io::stdout().write_all(&block).expect("a reader");
                std::io::stderr().write_all(&block).expect("a reader");
            }
        }
        _ => unreachable!("{name}"),
    }
}

fn main() {
    if let Some(name) = env::args().nth(1) {
        return role(&name);
    }
    let me = env::current_exe().expect("a path");
    let run = |words: &[&str]| {
        let mut command = Command::new(&me);
        command.args(words);
        command
    };
    for status in ["0", "1", "255", "256"] {
        println!("{status}: {}", run(&["status", status]).status().expect("runs"));
    }
    let output = run(&["abort"]).output().expect("runs");
    println!("{:?} {:?}", output.status.code(), output.status.signal());
    let output = run(&["panic"]).output().expect("runs");
    println!("{} {}", output.status, String::from_utf8_lossy(&output.stderr).contains("told to"));

    let mut child = run(&["echo"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    child.stdin.take().expect("piped").write_all(b"shout this").expect("a reader");
    let output = child.wait_with_output().expect("ends");
    println!("{:?} {:?}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));

    let output = run(&["environment", "a b", "", "ü"]).env_clear().env("ONE", "1").env("TWO", "zwei").current_dir("/tmp").output().expect("runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let output = run(&["much"]).output().expect("runs");
    println!("{} {}", output.stdout.len(), output.stderr.len());

    let mut child = run(&["sleep"]).spawn().expect("runs");
    println!("{:?}", child.try_wait().expect("a child"));
    child.kill().expect("kills");
    println!("{:?}", child.wait().expect("ends").signal());

    let mut child = run(&["lines"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    let mut input = child.stdin.take().expect("piped");
    let mut answers = BufReader::new(child.stdout.take().expect("piped")).lines();
    for i in 0..50 {
        writeln!(input, "line {i}").expect("a reader");
        let answer = answers.next().expect("a line").expect("UTF-8");
        if i % 10 == 0 {
            println!("{answer}");
        }
    }
    drop(input);
    println!("{}", child.wait().expect("ends"));

    println!("{:?}", Command::new("/no/such/program").spawn().map(|_| ()).map_err(|e| e.kind()));
    println!("{:?}", run(&["status", "3"]).current_dir("/no/such").status().map(|_| ()).map_err(|e| e.kind()));
    println!("{}", run(&["status", "4"]).process_group(0).uid(0).status().expect("runs"));
    let many: Vec<_> = (0..20).map(|i| run(&["status", &i.to_string()]).spawn().expect("runs")).collect();
    let sum: i32 = many.into_iter().map(|mut c| c.wait().expect("ends").code().unwrap_or(1000)).sum();
    println!("{sum}");
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let me = me.clone();
            thread::spawn(move || Command::new(me).args(["status", &i.to_string()]).status().expect("runs").code())
        })
        .collect();
    for t in threads {
        println!("{:?}", t.join().expect("no panic"));
    }
    println!("{}", Command::new("sh").args(["-c", "echo from the shell | tr a-z A-Z; exit 6"]).status().expect("runs"));
    let error = run(&["status", "21"]).arg0("renamed").exec();
    unreachable!("{error}");
}
