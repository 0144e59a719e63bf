/* Threads store to huge pages that nobody asked for while those are weighed, without a pause, by forks and by changes of
   rights elsewhere in them: no store is lost. Arguments: how many threads, for how many seconds, a seed. */
#include "say.h"
#include <pthread.h>
#include <stdatomic.h>

#define HUGE (2l << 20)
#define PAGES 512
#define REGIONS 8
/* The first pages of a region are there to have their rights changed. */
#define FIRST 4

static char *memory;
static pthread_rwlock_t use = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static atomic_int over;
static atomic_long stores, lost, weighed;

static unsigned random_below(unsigned long *state, unsigned bound)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 20) % bound;
}

struct writer {
	pthread_t thread;
	int number;
	unsigned long state;
};

/* Each thread has a word of its own in each page, and knows what it stored there in this round. */
static void *run(void *argument)
{
	struct writer *writer = argument;
	static __thread uint32_t known[REGIONS][PAGES];
	uint32_t value = 0;
	while (!atomic_load(&over)) {
		pthread_rwlock_rdlock(&use);
		memset(known, 0, sizeof known);
		for (int turn = 0; turn < 1500; turn++) {
			int region = random_below(&writer->state, REGIONS);
			int page = FIRST + random_below(&writer->state, PAGES - FIRST);
			volatile uint32_t *word = (uint32_t *)(memory + region * HUGE + page * PAGE) + writer->number;
			if (*word != known[region][page]) {
				atomic_fetch_add(&lost, 1);
				say("page %d of region %d shows %u, not %u", page, region, *word, known[region][page]);
			}
			if (random_below(&writer->state, 4)) {
				*word = known[region][page] = ++value;
				atomic_fetch_add(&stores, 1);
			}
		}
		/* All of the round is looked at again before it goes. */
		for (int region = 0; region < REGIONS; region++)
			for (int page = FIRST; page < PAGES; page++) {
				uint32_t word = ((uint32_t *)(memory + region * HUGE + page * PAGE))[writer->number];
				if (word != known[region][page]) {
					atomic_fetch_add(&lost, 1);
					say("in the end page %d of region %d shows %u, not %u", page, region, word, known[region][page]);
				}
				((uint32_t *)(memory + region * HUGE + page * PAGE))[writer->number] = 0;
			}
		pthread_rwlock_unlock(&use);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 4;
	int seconds = argc > 2 ? atoi(argv[2]) : 5;
	unsigned long state = argc > 3 ? strtoul(argv[3], 0, 0) * 2654435761u + 1 : 1;
	char *all = MUST(mmap(0, (REGIONS + 1) * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	memory = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE);
	struct writer writers[16];
	for (int i = 0; i < threads && i < 16; i++) {
		writers[i].number = i;
		writers[i].state = state * (i + 3) | 1;
		pthread_create(&writers[i].thread, 0, run, &writers[i]);
	}
	double end = now() + seconds;
	while (now() < end) {
		/* New ones, once nobody is in the middle of a round. */
		pthread_rwlock_wrlock(&use);
		MUST(madvise(memory, REGIONS * HUGE, MADV_DONTNEED));
		pthread_rwlock_unlock(&use);
		for (int turn = 0; turn < 12; turn++) {
			char *region = memory + random_below(&state, REGIONS) * HUGE;
			switch (random_below(&state, 4)) {
			case 0: {
				pid_t child = fork();
				if (child == 0)
					_exit(0);
				if (child > 0)
					MUST(waitpid(child, 0, 0));
				break;
			}
			case 1:
				MUST(mprotect(region, PAGE, PROT_READ));
				MUST(mprotect(region, PAGE, PROT_READ | PROT_WRITE));
				break;
			case 2:
				MUST(madvise(region + PAGE, PAGE, MADV_DONTNEED));
				break;
			default:
				sleep_ms(random_below(&state, 3));
			}
			atomic_fetch_add(&weighed, 1);
		}
	}
	atomic_store(&over, 1);
	for (int i = 0; i < threads && i < 16; i++)
		pthread_join(writers[i].thread, 0);
	HOLDS(atomic_load(&stores) > 1000 && atomic_load(&weighed) > 5);
	HOLDS(atomic_load(&lost) == 0);
}
