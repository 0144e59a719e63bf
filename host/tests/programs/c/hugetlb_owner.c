/* An owner of pages of the pool stores to them while children that share them read, store, unmap
 * and end. The pool has none to spare, so each store asks the page back: even if a child still has
 * it for a moment, the owner's store works.
 * Arguments: owners, rounds of each. */
#include "pool.h"
#include "account.h"
#include <sys/wait.h>

#define PAGES 4

/* Owners that have their pages promised: none takes one before all have. */
static _Atomic int *ready;

static int owner(int number, int owners, int rounds)
{
	char *map = mmap(NULL, PAGES * HUGE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_HUGETLB | MAP_PRIVATE, -1, 0);

	if (map == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	++*ready;
	while (*ready < owners)
		usleep(1000);
	for (int round = 0; round < rounds; round++) {
		for (int page = 0; page < PAGES; page++)
			if (touch(map + page * HUGE, 1)) {
				printf("owner %d: a store fails in round %d\n", number, round);
				return 1;
			}
		for (int child = 0; child < 3; child++)
			if (fork() == 0) {
				/* The owner may take the page first. */
				signal(SIGBUS, SIG_DFL);
				for (int page = 0; page < PAGES; page++)
					if (child == 0)
						(void)*(volatile char *)(map + page * HUGE);
					else if (child == 1)
						munmap(map + page * HUGE, HUGE);
					else
						map[page * HUGE] = 1;
				_exit(0);
			}
		for (int page = 0; page < PAGES; page++)
			if (touch(map + page * HUGE, 1)) {
				printf("owner %d: a store to a shared page fails in round %d\n", number, round);
				return 1;
			}
		while (wait(NULL) > 0)
			;
		if (map[0] != (char)(2 * (round + 1))) {
			printf("owner %d: a store is lost in round %d\n", number, round);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	int owners = argc > 1 ? atoi(argv[1]) : 4, rounds = argc > 2 ? atoi(argv[2]) : 100, bad = 0, status;

	catch_signals();
	ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct account before = take_account();
	write_knob(POOL, owners * PAGES);
	for (int number = 0; number < owners; number++)
		if (fork() == 0)
			_exit(owner(number, owners, rounds));
	while (wait(&status) > 0)
		if (status) {
			printf("an owner ends with %x\n", status);
			bad = 1;
		}
	write_knob(POOL, 0);
	puts(bad ? "WRONG" : "right");
	return bad | settle(&before);
}
