/* Threads put pages of the pool and ordinary ones in each other's place, while others advise, protect, lock and move
 * odd parts of the same addresses. No call may meet half a page of the pool. Arguments: rounds, seed. */
#include "pool.h"
#include "account.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>

#define PAGES 8

static char *place;
static int rounds;
static _Atomic int working = 2;

static unsigned next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state >> 33;
}

static void *replace(void *seed)
{
	uint64_t state = (uintptr_t)seed * 0x9e3779b97f4a7c15ULL;

	for (int round = 0; round < rounds; round++) {
		char *at = place + next(&state) % (PAGES - 1) * HUGE;
		size_t bytes = (1 + next(&state) % 2) * HUGE;
		int flags = MAP_FIXED | MAP_ANONYMOUS | (next(&state) % 2 ? MAP_PRIVATE : MAP_SHARED);

		if (next(&state) % 2)
			mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
		else
			mmap(at + next(&state) % 3 * 4096, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
		madvise(at, HUGE, next(&state) % 2 ? MADV_HUGEPAGE : 23 /* MADV_POPULATE_WRITE */);
	}
	working--;
	return NULL;
}

static void *advise(void *seed)
{
	static const int kinds[] = {MADV_DONTNEED, MADV_REMOVE, MADV_FREE, MADV_DONTFORK, MADV_DOFORK};
	uint64_t state = (uintptr_t)seed * 0x9e3779b97f4a7c15ULL;

	while (working > 0) {
		char *at = place + next(&state) % (PAGES * 512) * 4096;
		size_t bytes = (1 + next(&state) % 600) * 4096;

		switch (next(&state) % 8) {
		case 0:
			mprotect(at, bytes, PROT_READ | PROT_WRITE);
			break;
		case 1:
			mlock(at, bytes);
			munlock(at, bytes);
			break;
		case 2:
			mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place + next(&state) % (PAGES * 512) * 4096);
			break;
		case 3:
			if (next(&state) % 20 == 0 && fork() == 0)
				_exit(0);
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
			break;
		default:
			madvise(at, bytes, kinds[next(&state) % 5]);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	uintptr_t seed = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;

	rounds = argc > 1 ? atoi(argv[1]) : 1000;
	struct account before = take_account();
	write_knob(POOL, PAGES);
	place = mmap(NULL, (PAGES + 4) * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	place = (char *)(((uintptr_t)place + HUGE - 1) & ~(HUGE - 1));
	for (int number = 0; number < 4; number++)
		pthread_create(&threads[number], NULL, number < 2 ? replace : advise, (void *)(seed * 4 + number + 1));
	for (int number = 0; number < 4; number++)
		pthread_join(threads[number], NULL);
	while (wait(NULL) > 0)
		;
	munmap(place, (PAGES + 3) * HUGE);
	write_knob(POOL, 0);
	counters("in the end");
	return settle(&before);
}
