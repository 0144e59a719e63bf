/* Processes make the pool larger and smaller and take all that is in it, while the host is told of what is free. Pages must come zero and
 * stay what their owner wrote. Arguments: PROCESSES PAGES ROUNDS. */
#include "pool.h"
#include <sys/wait.h>

static int use(char *map, int pages, char mark)
{
	int wrong = 0;

	for (int page = 0; page < pages; page++) {
		wrong |= map[page * HUGE] != 0;
		map[page * HUGE] = mark;
	}
	for (int page = 0; page < pages; page++)
		wrong |= map[page * HUGE] != mark;
	return wrong;
}

int main(int argc, char **argv)
{
	int processes = atoi(argv[1]), pages = atoi(argv[2]), rounds = atoi(argv[3]), status, bad = 0;
	size_t bytes = pages * HUGE;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int number = 0; number < processes; number++) {
		if (fork() != 0)
			continue;
		int wrong = 0;
		for (int round = 0; round < rounds; round++) {
			write_knob(POOL, 0);
			write_knob(POOL, pages);
			char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			                 MAP_ANONYMOUS | MAP_PRIVATE | MAP_HUGETLB, -1, 0);
			if (map == MAP_FAILED)
				continue;
			wrong |= use(map, pages, number + 1);
			munmap(map, bytes);
		}
		_exit(wrong);
	}
	while (wait(&status) > 0)
		bad |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	write_knob(POOL, 0);
	printf("%s\n", bad ? "WRONG" : "right");
	counters("in the end");
	return bad;
}
