//! Tests with more processes and threads at once than any sane program creates.

use crate::{ebb, programs};

#[track_caller]
fn storm(options: &[&str], name: &str, words: &[&str], status: i32, expected: &str) {
    let mut program = vec![programs::text(programs::path(name))];
    program.extend(words.iter().map(|word| (*word).to_owned()));
    let outcome = ebb::run(600, options, &program);
    assert_eq!(outcome.expect(status).out(), expected);
}

#[test]
fn forks() {
    let expected = "16 processes made 100 children each, 0 of them went wrong\n\
                    1000 alive at once, 0 went wrong\n\
                    a tree of 255 processes\n";
    storm(
        &["-m", "512M", "-c", "4"],
        "fork_storm",
        &["16", "100", "1000"],
        0,
        expected,
    );
}

#[test]
fn threads() {
    let expected = "2000 came and went\n1000 made\n1000 were here at once\n400 made by 8 at once\n";
    storm(
        &["-m", "512M", "-c", "4"],
        "thread_storm",
        &["2000", "1000"],
        17,
        expected,
    );
}

#[test]
#[ignore = "long: make test-long"]
fn processes_that_end_while_they_make_threads() {
    storm(
        &["-m", "256M", "-c", "4"],
        "start_storm",
        &["4", "1500"],
        0,
        "4 workers, 0 went wrong\n",
    );
}

#[test]
#[ignore = "long: make test-long"]
fn tracers_killed_while_tracees_fork() {
    storm(
        &["-m", "256M", "-c", "4"],
        "ptrace_storm",
        &["300", "6", "40"],
        0,
        "300 tracers ended, none is left\n",
    );
}

#[test]
fn tracers_killed_while_tracees_run() {
    storm(
        &["-m", "256M", "-c", "4"],
        "ptrace_storm",
        &["left"],
        0,
        "breakpoint exited with 7\n\
         breakpoint of one that stands exited with 7\n\
         step of one that stands exited with 7\n\
         step exited with 7\n\
         who makes threads exited with 7\n\
         100 more threads\n",
    );
}

#[test]
#[ignore = "long: make test-long"]
fn pages_replaced_before_readers() {
    storm(
        &["-m", "256M", "-c", "4"],
        "stale",
        &["3", "2000"],
        0,
        "2000 replaced before 3 readers, 0 stale\n",
    );
}

#[test]
fn private_copies_of_a_file_that_is_cut() {
    storm(
        &["-m", "256M", "-c", "4"],
        "private_copies",
        &["4", "1500"],
        0,
        "1500 fillings, 0 stale\n",
    );
}

#[test]
fn shared_segments() {
    storm(
        &["-m", "256M", "-c", "4"],
        "shm_storm",
        &["12", "400"],
        0,
        "12 ended well, 0 went wrong, 0 segments and 0 pages are left\n",
    );
}

#[test]
fn semaphores_and_queues() {
    storm(
        &["-m", "256M", "-c", "4"],
        "ipc_storm",
        &["12", "1500"],
        0,
        "12 ended, 0 of them badly, 0 calls went wrong\n\
         0 semaphores were not undone, 0 sets, 0 semaphores, 0 queues, 0 messages are left\n",
    );
}

#[test]
fn sockets() {
    for cpus in ["1", "4"] {
        storm(
            &["-m", "256M", "-c", cpus],
            "socket_storm",
            &["12", "1000"],
            0,
            "12 processes, 0 went wrong, 0 names are taken, descriptors are left: 0\n",
        );
    }
}

#[test]
fn signals_of_descriptors() {
    for cpus in ["1", "4"] {
        storm(
            &["-m", "256M", "-c", cpus],
            "sigio_storm",
            &["8", "400"],
            0,
            "8 ended, 0 went wrong\n",
        );
    }
}

#[test]
fn queues_until_there_is_no_room() {
    storm(
        &["-m", "128M", "-c", "2"],
        "ipc_storm",
        &["fill"],
        0,
        "no memory: 1, some was taken: 1\n\
         semget(IPC_PRIVATE, 32000, 0600) = -1 ENOMEM\n\
         id = semget(IPC_PRIVATE, 32000, 0600) succeeds\n\
         semctl(id, 0, IPC_RMID) = 0\n\
         limit 819200\n\
         mq_open(\"/b\", O_RDWR | O_CREAT, 0600, &one) = -1 EMFILE\n\
         mq_unlink(\"/a\") = 0\n\
         mq_open(\"/b\", O_RDWR | O_CREAT, 0600, &one) = -1 EMFILE\n\
         mq_close(q) = 0\n\
         mq_open(\"/a\", O_RDWR | O_CREAT, 0600, &hundred) = -1 EMFILE\n\
         mq_open(\"/b\", O_RDWR | O_CREAT, 0600, &one) succeeds\n\
         mq_unlink(\"/b\") = 0\n\
         who has a limit exited with 0\n\
         9 queues, EMFILE\n9 queues, EMFILE\n",
    );
}

/// Shows that calls fail or processes die if memory runs out during a storm, and that the guest
/// survives.
#[test]
fn a_storm_that_memory_does_not_last_for() {
    let storm = programs::text(programs::path("fork_storm"));
    let file = format!("{storm}:/fork_storm");
    let script = "/fork_storm 8 20 5000 > /dev/null 2>&1; echo survived; \
                  for i in 1 2 3; do ls / > /dev/null && echo again; done";
    let options = ["-m", "48M", "-c", "2", "--busybox", "--file", &file];
    let outcome = ebb::run(600, &options, &["sh", "-c", script]);
    // The guest's OOM killer may end the shell itself, but the guest must survive.
    match outcome.code() {
        Some(0) => assert_eq!(outcome.out(), "survived\nagain\nagain\nagain\n"),
        Some(137) => {}
        _ => {
            outcome.expect(0);
        }
    }
}
