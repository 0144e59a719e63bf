/* Processes that end by one thread while another one makes threads as fast as it can. */
#include "say.h"
#include <sched.h>

enum { THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM };

/* More than there are tasks at once: none is used twice before its thread has begun. */
static char stacks[8192][512] __attribute__((aligned(16)));
static char own_stack[2 * PAGE] __attribute__((aligned(16)));

static int ends(void *arg) { return syscall(SYS_exit, 0), (long)arg; }

static int ends_all(void *turns)
{
	for (volatile long n = (long)turns; n > 0; n--)
		;
	return syscall(SYS_exit_group, 3);
}

static void work(int rounds, unsigned random)
{
	int good = 0;
	for (int n = 0; n < rounds; n++) {
		random = random * 1103515245 + 12345;
		pid_t pid = MUST(fork());
		if (pid == 0) {
			clone(ends_all, own_stack + sizeof own_stack, THREAD, (void *)(long)(random / 65536 % 40000));
			for (int k = 0;; k++)
				clone(ends, stacks[k % 8192] + sizeof *stacks, THREAD, 0);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		good += status == 3 << 8;
	}
	_exit(good != rounds);
}

int main(int argc, char **argv)
{
	int workers = argc > 1 ? atoi(argv[1]) : 4;
	int rounds = argc > 2 ? atoi(argv[2]) : 500;
	alarm(600);
	for (int n = 0; n < workers; n++)
		if (MUST(fork()) == 0)
			work(rounds, n + 1);
	int status, bad = 0;
	while (wait(&status) > 0)
		bad += status != 0;
	say("%d workers, %d went wrong", workers, bad);
	return 0;
}
