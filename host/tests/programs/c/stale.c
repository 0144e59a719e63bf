/* stale READERS TURNS: a page is replaced again and again while threads on other CPUs read it. Who reads after the replacement
 * and before the next must find what was written to the new page. */
#include "say.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#define MOST 32

static volatile long *page;
/* The replacement that is under way, and the last that is done. */
static atomic_long begun, done;
static atomic_long seen[MOST];
static atomic_long wrong;

static void *reads(void *arg)
{
	long me = (long)arg, last;
	do {
		last = atomic_load(&done);
		long value = *page;
		if (atomic_load(&begun) != last)
			continue;
		if (value != last)
			atomic_fetch_add(&wrong, 1);
		atomic_store(&seen[me], last);
	} while (last >= 0);
	return NULL;
}

int main(int argc, char **argv)
{
	int readers = argc > 1 ? atoi(argv[1]) : 3, turns = argc > 2 ? atoi(argv[2]) : 200;
	if (readers < 1 || readers > MOST)
		return 2;
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t[MOST];
	for (long i = 0; i < readers; i++)
		pthread_create(&t[i], NULL, reads, (void *)i);
	for (int turn = 1; turn <= turns; turn++) {
		atomic_store(&begun, turn);
		if (mmap((void *)page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
			return 1;
		*page = turn;
		atomic_store(&done, turn);
		for (int i = 0; i < readers; i++)
			while (atomic_load(&seen[i]) < turn) {
				struct timespec moment = {0, 1000};
				nanosleep(&moment, NULL);
			}
	}
	atomic_store(&begun, -1);
	*page = -1;
	atomic_store(&done, -1);
	for (int i = 0; i < readers; i++)
		pthread_join(t[i], NULL);
	say("%d replaced before %d readers, %ld stale", turns, readers, atomic_load(&wrong));
	return atomic_load(&wrong) != 0;
}
