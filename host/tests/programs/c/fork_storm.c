/* Forks as fast as it can, from many processes at once, while each owns memory. */
#include "say.h"

static int forks, children;

static void work(int seed)
{
	char *p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 64; i++)
		p[i * PAGE] = seed + i;
	for (int round = 0; round < forks; round++) {
		pid_t pid = fork();
		if (pid == 0) {
			for (int i = 0; i < 64; i += 7)
				p[i * PAGE]++;
			_exit(p[63 * PAGE] == (char)(seed + 64));
		}
		int status;
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 1 << 8)
			_exit(1);
	}
	for (int i = 0; i < 64; i++)
		if (p[i * PAGE] != (char)(seed + i))
			_exit(2);
	_exit(0);
}

int main(int argc, char **argv)
{
	children = argc > 1 ? atoi(argv[1]) : 8;
	forks = argc > 2 ? atoi(argv[2]) : 100;
	int alive = argc > 3 ? atoi(argv[3]) : 300;
	for (int i = 0; i < children; i++)
		if (MUST(fork()) == 0)
			work(i);
	int status, bad = 0;
	while (wait(&status) > 0)
		bad += status != 0;
	say("%d processes made %d children each, %d of them went wrong", children, forks, bad);
	/* many at the same time, that all wait for one pipe */
	int p[2];
	MUST(pipe(p));
	int made = 0;
	for (int i = 0; i < alive; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			char c;
			close(p[1]);
			_exit(read(p[0], &c, 1) == 0 ? 0 : 1);
		}
		made += pid > 0;
	}
	close(p[1]);
	while (wait(&status) > 0)
		bad += status != 0;
	say("%d alive at once, %d went wrong", made, bad);
	/* a tree: each of 2 children makes 2, seven levels deep */
	int depth = 0;
	while (depth < 7) {
		pid_t a = fork();
		if (a == 0) {
			depth++;
			continue;
		}
		pid_t b = fork();
		if (b == 0) {
			depth++;
			continue;
		}
		int sum = 1;
		while (wait(&status) > 0)
			sum += WEXITSTATUS(status);
		if (depth == 0)
			say("a tree of %d processes", sum);
		_exit(depth == 0 ? 0 : sum);
	}
	_exit(1);
}
