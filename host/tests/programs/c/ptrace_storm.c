/* Tracers that are killed while those they trace make children, which are traced too. */
#include "say.h"
#include <linux/ptrace.h>
#include <sys/prctl.h>

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

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 100;
	int workers = argc > 2 ? atoi(argv[2]) : 6;
	forks = argc > 3 ? atoi(argv[3]) : 40;
	alarm(180);
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
	say("%d tracers ended, nobody is left", killed);
	return 0;
}
