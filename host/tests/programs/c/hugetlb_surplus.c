/* Memory is full, and processes ask for surplus pages that cannot be made, while they give back and take those of the
 * pool: it must be as large afterwards as before. Argument: rounds. */
#include "pool.h"
#include <sys/wait.h>

#define PAGES 8

static void take_and_give_back(int rounds)
{
	char *at = map_pool(PAGES * HUGE, MAP_PRIVATE | MAP_NORESERVE);

	for (int round = 0; round < rounds; round++) {
		for (int page = 0; page < PAGES; page++)
			if (touch(at + page * HUGE, 1))
				break;
		madvise(at, PAGES * HUGE, MADV_DONTNEED);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 500, status;
	size_t most = 1UL << 30;

	catch_signals();
	write_knob(POOL, 6);
	write_knob(OVERCOMMIT, 100);
	/* In small pages, so that no huge one is left. */
	char *rest = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	madvise(rest, most, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < most && (at % (256 << 10) || meminfo("MemFree") > 9000); at += 4096)
		rest[at] = 1;
	for (int child = 0; child < 3; child++)
		if (fork() == 0)
			take_and_give_back(rounds);
	while (wait(&status) > 0)
		if (status)
			printf("a child ended with %x\n", status);
	counters("at last");
	munmap(rest, most);
	write_knob(OVERCOMMIT, 0);
	write_knob(POOL, 0);
	counters("in the end");
	return 0;
}
