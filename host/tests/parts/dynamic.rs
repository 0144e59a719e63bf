//! Tests of dynamic programs, for both kernels.

use crate::scratch::Scratch;
use std::process::Command;

const LIBRARY: &str = r#"
#include <stdlib.h>
static int begun;
__thread int own = 5;
__attribute__((constructor)) static void begin(void) { begun = 1; }
int of_library(int value) { return begun * (own += value); }
"#;

/// A program that executes itself again, finds its libraries where the linker has placed them, and
/// has a thread-local variable in each thread.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

int of_library(int value);

static int name(struct dl_phdr_info *info, size_t size, void *seen)
{
	char *slash = strrchr(info->dlpi_name, '/');
	if (slash && info->dlpi_phnum > 0)
		*(int *)seen |= strcmp(slash, "/libown.so") == 0 ? 1 : strcmp(slash, "/libm.so.6") == 0 ? 2
			: strcmp(slash, "/libc.so.6") == 0 ? 4 : strcmp(slash, "/ld-linux-x86-64.so.2") == 0 ? 8 : 0;
	return 0;
}

/* glibc loads a library for the end of a thread by this call. */
static void *run(void *argument) { pthread_exit((void *)(long)of_library(*(int *)argument)); }

int main(int argc, char **argv)
{
	int seen = 0, twenty = 20;
	void *result;
	pthread_t thread;
	if (argc > 1) {
		printf("again: %s %d\n", argv[1], of_library(1));
		return 3;
	}
	dl_iterate_phdr(name, &seen);
	pthread_create(&thread, 0, run, &twenty);
	pthread_join(thread, &result);
	printf("%d %ld %d %.3f\n", seen, (long)result, of_library(2), sqrt(argc * 2.0));
	printf("loader %d, entry %d, name %d\n", getauxval(AT_BASE) != 0,
	       getauxval(AT_ENTRY) - (unsigned long)main < 1 << 20 || (unsigned long)main - getauxval(AT_ENTRY) < 1 << 20,
	       strcmp((char *)getauxval(AT_EXECFN), argv[0]) == 0);
	fflush(stdout);
	pid_t child = fork();
	int status = 0;
	if (child == 0) {
		execl("/proc/self/exe", argv[0], "x", (char *)0);
		_exit(99);
	}
	waitpid(child, &status, 0);
	return WEXITSTATUS(status) + 1;
}
"#;

fn gcc(arguments: &[&str]) {
    let output = Command::new("gcc").args(arguments).output();
    let output = output.expect("no gcc here: apt-get install gcc libc6-dev");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

/// Tests that a program is loaded as on the host, with a library in its own folder, and as the
/// interpreter of a script.
pub(crate) fn a_program_is_loaded_with_its_libraries(ebb: fn(&[&str]) -> Command) {
    // Guests have their own devices below `/dev`, so the folder is elsewhere.
    let scratch = Scratch::within(&std::env::temp_dir(), "dynamic");
    std::fs::create_dir(scratch.path("lib")).expect("a new folder");
    let library = scratch.path("lib/libown.so");
    let source = scratch.write("own.c", LIBRARY);
    let name = "-Wl,-soname,libown.so";
    gcc(&["-shared", "-fPIC", "-o", &library, &source, name]);
    let source = scratch.write("program.c", PROGRAM);
    let program = scratch.path("program");
    let place = "-Wl,-rpath,$ORIGIN/lib";
    gcc(&["-pthread", "-o", &program, &source, &library, "-lm", place]);
    let expected = "15 25 7 1.414\nloader 1, entry 1, name 1\nagain: x 6\n";
    let run = |words: &[&str], status: i32, expected: &str| {
        let output = ebb(&[&["--quiet"], words].concat()).output();
        let output = output.expect("ebb starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(stdout, expected, "{stderr}");
        assert_eq!(output.status.code(), Some(status), "{stderr}");
    };
    run(&["--", &program], 4, expected);
    // Through a link.
    let link = scratch.path("link");
    std::os::unix::fs::symlink(&program, &link).expect("a new link");
    run(&["--", &link], 4, expected);
    let elsewhere = Scratch::new("dynamic");
    let alone = elsewhere.path("alone");
    let rpath = format!("-Wl,-rpath,{}", scratch.path("lib"));
    gcc(&["-o", &alone, &source, &library, "-lm", &rpath]);
    run(&["--", &alone], 4, expected);
    // Started by another program, at another path.
    let packed = format!("{alone}:/opt/alone");
    let words = ["--file", &packed, "--", "sh", "-c", "/opt/alone"];
    run(&words, 4, expected);
    let script = scratch.write("script", format!("#!{program}\n"));
    run(&["--", &script], 3, "again: /bin/script 6\n");
}
