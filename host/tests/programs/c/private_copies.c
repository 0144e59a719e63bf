/* Threads store to private mappings of a file, which copies its pages, while another cuts the file and fills it anew: what was
   cut is in no mapping any more, not in a copy either. Arguments: how many threads, how many fillings. */
#include "say.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>

#define PAGES 64
#define WORDS (PAGE / 8)

static int file;
static atomic_int over;
/* Fillings that were cut: what shows one of these is stale. */
static atomic_ulong gone;
static atomic_long stale, stores;
static _Thread_local sigjmp_buf before;

static void beyond(int number)
{
	siglongjmp(before, number);
}

/* Stores to each page, and looks at what is around the store. */
static void *copy(void *none)
{
	while (!over) {
		volatile uint64_t *words = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
		if (words == MAP_FAILED)
			exit(3);
		for (volatile int page = 0; page < PAGES; page++) {
			/* The file may end before the page just now. */
			if (sigsetjmp(before, 1))
				continue;
			words[page * WORDS] = 1;
			atomic_fetch_add(&stores, 1);
			for (int i = 1; i < WORDS; i += 50) {
				uint64_t cut = gone, shown = words[page * WORDS + i];
				/* A page that was not yet written again is of zeros. */
				if (shown && shown <= cut && atomic_fetch_add(&stale, 1) < 10)
					say("page %d shows filling %lu, %lu are gone", page, shown, cut);
			}
		}
		munmap((void *)words, PAGES * PAGE);
	}
	return none;
}

int main(int count, char **words)
{
	static uint64_t filling[PAGES * WORDS];
	pthread_t threads[16];
	int number = count > 1 ? atoi(words[1]) : 4;
	unsigned long fillings = count > 2 ? strtoul(words[2], 0, 10) : 300;
	struct sigaction action = { .sa_handler = beyond };
	sigaction(SIGBUS, &action, 0);
	file = memfd_create("file", MFD_CLOEXEC);
	for (int i = 0; i < number; i++)
		pthread_create(&threads[i], 0, copy, 0);
	for (unsigned long value = 1; value <= fillings; value++) {
		for (int i = 0; i < PAGES * WORDS; i++)
			filling[i] = value;
		if (pwrite(file, filling, sizeof filling, 0) != sizeof filling)
			return 4;
		for (long until = stores + PAGES; stores < until;)
			usleep(100);
		if (ftruncate(file, 0))
			return 5;
		gone = value;
	}
	over = 1;
	for (int i = 0; i < number; i++)
		pthread_join(threads[i], 0);
	say("%lu fillings, %ld stale", fillings, (long)stale);
	return stale != 0;
}
