/* Tracers that are killed while those they trace make children, which are traced too, or run with what
 * the tracer has set. */
#include "say.h"
#include <linux/ptrace.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/user.h>
#include <pthread.h>

static int forks;

static long trace(long request, pid_t pid, unsigned long data)
{
	return syscall(SYS_ptrace, request, pid, 0, data);
}

static void work(void)
{
	for (int n = 0; n < forks; n++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(0);
		while (pid > 0 && waitpid(pid, 0, 0) == -1 && errno == EINTR)
			;
	}
	_exit(0);
}

/* Makes workers, traces them and what they make, and lets all of them go on. */
static void tracer(int workers, unsigned long options)
{
	int ends[2], status;
	MUST(pipe(ends));
	pid_t pid = MUST(fork());
	if (pid == 0) {
		char c;
		close(ends[1]);
		setpgid(0, 0);
		if (read(ends[0], &c, 1) != 1)
			_exit(0);
		for (int n = 0; n < workers; n++)
			if (fork() == 0)
				work();
		while (wait(0) > 0)
			;
		_exit(0);
	}
	MUST(trace(PTRACE_SEIZE, pid, PTRACE_O_TRACEFORK | options));
	MUST(write(ends[1], "x", 1));
	while ((pid = waitpid(-1, &status, __WALL)) > 0)
		if (WIFSTOPPED(status))
			trace(PTRACE_CONT, pid, status >> 16 ? 0 : WSTOPSIG(status));
	_exit(0);
}

static volatile int *shared;

static __attribute__((noinline)) void breaks_here(void) { ++shared[0]; }

/* Kills a tracer that has set a breakpoint, or lets its tracee step, while that runs. */
static void left(const char *what, int steps, int stands)
{
	int ends[2];
	shared[0] = shared[1] = 0;
	MUST(pipe(ends));
	pid_t pid = MUST(fork());
	if (pid == 0) {
		char c;
		if (steps && !stands)
			MUST(read(ends[0], &c, 1));
		while (shared[1] == 0)
			;
		for (int n = 0; n < 1000; n++)
			breaks_here();
		_exit(shared[0] == 1000 ? 7 : 1);
	}
	pid_t tracer = MUST(fork());
	if (tracer == 0) {
		int status;
		sleep_ms(20);
		MUST(trace(PTRACE_SEIZE, pid, 0));
		MUST(trace(PTRACE_INTERRUPT, pid, 0));
		waitpid(pid, &status, __WALL);
		if (steps && !stands) {
			/* It waits in its call. */
			MUST(trace(PTRACE_SINGLESTEP, pid, 0));
			sleep_ms(30);
		} else if (steps) {
			for (int n = 0; n < 10; n++) {
				MUST(trace(PTRACE_SINGLESTEP, pid, 0));
				waitpid(pid, &status, __WALL);
			}
		} else {
			long at = offsetof(struct user, u_debugreg);
			MUST(syscall(SYS_ptrace, PTRACE_POKEUSR, pid, at, breaks_here));
			MUST(syscall(SYS_ptrace, PTRACE_POKEUSR, pid, at + 7 * 8, 1));
			if (!stands)
				MUST(trace(PTRACE_CONT, pid, 0));
		}
		_exit(0);
	}
	waitpid(tracer, 0, 0);
	shared[1] = 1;
	MUST(write(ends[1], "x", 1));
	close(ends[0]);
	close(ends[1]);
	int status;
	waitpid(pid, &status, 0);
	say_status(what, status);
}

static void *ends_at_once(void *arg) { return arg; }

/* Threads that have ended count while their tracer has not waited for them. */
static void ended(int limit)
{
	shared[1] = 0;
	pid_t pid = MUST(fork());
	if (pid == 0) {
		struct rlimit limits = { limit, limit };
		MUST(setrlimit(RLIMIT_NPROC, &limits));
		/* Root may have more. */
		MUST(setresuid(1234, 1234, 1234));
		while (shared[1] == 0)
			;
		for (int n = 0; n < 4 * limit; n++) {
			pthread_t thread;
			if (pthread_create(&thread, 0, ends_at_once, 0) != 0)
				_exit(7);
			pthread_join(thread, 0);
		}
		_exit(1);
	}
	pid_t tracer = MUST(fork());
	if (tracer == 0) {
		int status;
		long thread;
		MUST(trace(PTRACE_SEIZE, pid, PTRACE_O_TRACECLONE));
		shared[1] = 1;
		while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
			if (status >> 16 == PTRACE_EVENT_CLONE) {
				MUST(trace(PTRACE_GETEVENTMSG, pid, (long)&thread));
				waitpid(thread, &status, __WALL);
				MUST(trace(PTRACE_CONT, thread, 0));
			}
			MUST(trace(PTRACE_CONT, pid, 0));
		}
		_exit(0);
	}
	waitpid(tracer, 0, 0);
	int status;
	waitpid(pid, &status, 0);
	say_status("who makes threads", status);
	/* All are free again. */
	int made = 0;
	for (int n = 0; n < limit; n++) {
		pthread_t thread;
		made += pthread_create(&thread, 0, ends_at_once, 0) == 0 && pthread_join(thread, 0) == 0;
	}
	say("%d more threads", made);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 100;
	int workers = argc > 2 ? atoi(argv[2]) : 6;
	forks = argc > 3 ? atoi(argv[3]) : 40;
	alarm(600);
	shared = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	if (argc > 1 && !strcmp(argv[1], "left")) {
		left("breakpoint", 0, 0);
		left("breakpoint of one that stands", 0, 1);
		left("step of one that stands", 1, 1);
		left("step", 1, 0);
		ended(100);
		return 0;
	}
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
	unsigned random = 1;
	int killed = 0;
	for (int round = 0; round < rounds; round++) {
		pid_t pid = MUST(fork());
		if (pid == 0)
			tracer(workers, round % 2 ? PTRACE_O_EXITKILL : 0);
		random = random * 1103515245 + 12345;
		usleep(500 + random / 65536 % 4000);
		kill(pid, SIGKILL);
		int status;
		pid_t got;
		while ((got = wait(&status)) > 0 || errno == EINTR)
			killed += got == pid;
	}
	say("%d tracers ended, none is left", killed);
	return 0;
}
