/* Children: fork, wait in its forms, exit statuses, groups, orphans. */
#include "say.h"
#include <sys/resource.h>

static void waits(void)
{
	for (int code = 0; code < 300; code += 77)
		IN_CHILD("child", _exit(code));
	for (int sig = 1; sig < 16; sig++)
		if (sig != SIGSTOP)
			IN_CHILD("child", raise(sig));
	TRY(wait(NULL));
	TRY(waitpid(-1, NULL, WNOHANG));
	TRY(waitpid(123456, NULL, 0));
	TRY(waitpid(-1, NULL, 0x1000000));
	int p[2];
	MUST(pipe(p));
	pid_t child = MUST(fork());
	if (child == 0) {
		char c;
		close(p[1]);
		_exit(read(p[0], &c, 1) == 0 ? 5 : 6);
	}
	close(p[0]);
	TRY(waitpid(child, NULL, WNOHANG));
	close(p[1]);
	siginfo_t info = { 0 };
	TRY(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
	HOLDS(info.si_pid == child);
	say("signal %d code %d status %d", info.si_signo, info.si_code, info.si_status);
	int status;
	struct rusage usage;
	HOLDS(wait4(child, &status, 0, &usage) == child);
	HOLDS(usage.ru_maxrss >= 0);
	say_status("child", status);
	TRY(waitid(P_PID, child, &info, WEXITED));
	TRY(waitid(P_ALL, 0, &info, 0));
}

static void many(void)
{
	enum { N = 50 };
	pid_t pids[N];
	for (int i = 0; i < N; i++)
		if ((pids[i] = MUST(fork())) == 0)
			_exit(i);
	int sum = 0, seen = 0, status;
	pid_t pid;
	while ((pid = wait(&status)) > 0) {
		seen++;
		for (int i = 0; i < N; i++)
			if (pids[i] == pid && WIFEXITED(status) && WEXITSTATUS(status) == i)
				sum += i;
	}
	say("%d children, statuses sum to %d, then %s", seen, sum, strerrorname_np(errno));
}

static int depth(int n)
{
	if (n == 0)
		return 7;
	pid_t pid = MUST(fork());
	if (pid == 0)
		_exit(depth(n - 1) + 1);
	int status;
	MUST(waitpid(pid, &status, 0));
	return WEXITSTATUS(status);
}

static void groups(void)
{
	pid_t child = MUST(fork());
	if (child == 0) {
		HOLDS(getpgrp() == getpgid(getppid()));
		TRY(setpgid(0, 0));
		HOLDS(getpgrp() == getpid());
		TRY(setsid());
		pid_t grand = MUST(fork());
		if (grand == 0) {
			HOLDS(setsid() == getpid());
			HOLDS(getsid(0) == getpid() && getpgrp() == getpid());
			_exit(0);
		}
		waitpid(grand, NULL, 0);
		TRY(setpgid(0, 999999));
		TRY(setpgid(-1, 0));
		TRY(setpgid(-1, 1));
		TRY(setpgid(0, -1));
		TRY(setpgid(999999, -1));
		TRY(getpgid(-5));
		_exit(0);
	}
	MUST(waitpid(child, NULL, 0));
	TRY(kill(child, 0));

	/* waiting for a group, and killing one */
	int made[2];
	MUST(pipe(made));
	pid_t leader = MUST(fork());
	if (leader == 0) {
		setpgid(0, 0);
		if (fork() == 0)
			pause();
		if (fork() == 0)
			pause();
		MUST(write(made[1], "x", 1));
		pause();
	}
	char byte;
	MUST(read(made[0], &byte, 1));
	close(made[0]);
	close(made[1]);
	TRY(kill(-leader, SIGTERM));
	int status;
	HOLDS(waitpid(-leader, &status, 0) == leader);
	say_status("leader", status);
	TRY(waitpid(-leader, &status, 0));
}

static void orphans(void)
{
	int p[2];
	MUST(pipe(p));
	pid_t child = MUST(fork());
	if (child == 0) {
		pid_t before = getpid();
		if (fork() == 0) {
			for (int i = 0; i < 150000 && getppid() == before; i++)
				sleep_ms(2);
			char c = getppid() != before;
			MUST(write(p[1], &c, 1));
			_exit(0);
		}
		sleep_ms(10);
		_exit(0);
	}
	MUST(waitpid(child, NULL, 0));
	char c = 0;
	HOLDS(read(p[0], &c, 1) == 1 && c == 1);
}

static void copies(void)
{
	/* what a child writes, its parent does not see, and the other way round */
	volatile int on_stack = 1;
	static volatile int in_data = 2;
	volatile int *on_heap = malloc(1 << 20);
	on_heap[1000] = 3;
	int p[2], q[2];
	MUST(pipe(p));
	MUST(pipe(q));
	pid_t child = MUST(fork());
	if (child == 0) {
		char c;
		MUST(read(p[0], &c, 1));
		say("child sees %d %d %d", on_stack, in_data, on_heap[1000]);
		on_stack = in_data = on_heap[1000] = 20;
		MUST(write(q[1], "x", 1));
		_exit(0);
	}
	on_stack = in_data = on_heap[1000] = 10;
	MUST(write(p[1], "x", 1));
	char c;
	MUST(read(q[0], &c, 1));
	say("parent sees %d %d %d", on_stack, in_data, on_heap[1000]);
	MUST(waitpid(child, NULL, 0));
	/* an offset is shared */
	int fd = MUST(open("offset", O_RDWR | O_CREAT | O_TRUNC, 0600));
	MUST(write(fd, "abcdef", 6));
	lseek(fd, 0, SEEK_SET);
	char b[3] = "";
	IN_CHILD("reader", if (read(fd, b, 2) != 2) _exit(1));
	MUST(read(fd, b, 2));
	say("then comes %s", b);
	unlink("offset");
}

int main(void)
{
	waits();
	many();
	say("depth gives %d", depth(20));
	groups();
	orphans();
	copies();
	HOLDS(getppid() > 0 && getpid() > 1);
	fflush(stdout);
	atexit(({ void f(void) { say("at exit"); } f; }));
	exit(42);
}
