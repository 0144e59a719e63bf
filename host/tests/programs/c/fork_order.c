/* What a child sees of stores that another thread makes while the parent forks: those up to some moment, and no later one. */
#include "say.h"
#include <pthread.h>

/* Words far from one another, and memory between them that takes time to share. */
enum { WORDS = 12, APART = 2 << 20, FORKS = 40, PAGES = 200 };
static char *memory;
static volatile int stop;

static volatile long *word(int n) { return (long *)(memory + (long)n * APART); }

/* Stores the same number to all words, one after the other, and the next one then. */
static void *store(void *up)
{
	for (long number = 1; !stop; number++)
		for (int i = 0; i < WORDS; i++)
			*word(up ? i : WORDS - 1 - i) = number;
	return 0;
}

/* Where new pages come, and the word that says how many there are: at either end. */
static char *pages(long up) { return memory + (up ? 0 : (WORDS - 1) * (long)APART) + PAGE; }
static volatile long *filled(long up) { return word(up ? WORDS - 1 : 0); }

/* Stores to a page of its own each time, and says so then. */
static void *fill(void *up)
{
	long round = 0;
	for (long page = 0; !stop; page++) {
		if (page == PAGES) {
			round += PAGES;
			*filled((long)up) = page = 0;
			MUST(madvise(pages((long)up), PAGES * PAGE, MADV_DONTNEED));
		}
		/* Each round has numbers of its own. */
		*(volatile long *)(pages((long)up) + page * PAGE) = round + page + 1;
		*filled((long)up) = round + page + 1;
	}
	return 0;
}

/* Whether the numbers are as one store after the other leaves them. */
static int in_order(int up)
{
	long first = *word(up ? 0 : WORDS - 1), before = first;
	for (int i = 1; i < WORDS; i++) {
		long number = *word(up ? i : WORDS - 1 - i);
		if (number > before || number < first - 1)
			return 0;
		before = number;
	}
	return 1;
}

static int is_filled(int up)
{
	/* All pages of the round up to the last one, and none behind it. */
	long last = *filled(up), round = last - (last - 1) % PAGES - 1;
	if (last == 0)
		return 1;
	for (long n = 0; n < PAGES; n++) {
		long number = *(volatile long *)(pages(up) + n * PAGE);
		if (n < last - round ? number != round + n + 1 : number != 0 && (n > last - round || number != last + 1))
			return 0;
	}
	return 1;
}

static void forks(const char *what, void *(*body)(void *), long up, int (*check)(int))
{
	pthread_t thread;
	int wrong = 0, status;
	memory = MUST(mmap(0, (long)WORDS * APART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	MUST(madvise(memory, (long)WORDS * APART, MADV_NOHUGEPAGE));
	for (int i = 0; i < WORDS; i++)
		memset((char *)word(i), 0, APART / 2);
	if (body == fill)
		MUST(madvise(pages(up), PAGES * PAGE, MADV_DONTNEED));
	stop = 0;
	pthread_create(&thread, 0, body, (void *)up);
	for (int i = 0; i < FORKS; i++) {
		usleep(1000);
		pid_t child = MUST(fork());
		if (child == 0)
			_exit(!check(up));
		MUST(waitpid(child, &status, 0));
		wrong += status != 0;
	}
	stop = 1;
	pthread_join(thread, 0);
	munmap(memory, (long)WORDS * APART);
	say("%s: %d children of %d saw it otherwise", what, wrong, FORKS);
}

int main(void)
{
	forks("words upwards", store, 1, in_order);
	forks("words downwards", store, 0, in_order);
	forks("new pages below", fill, 1, is_filled);
	forks("new pages above", fill, 0, is_filled);
	return 0;
}
