/* Threads store to huge pages that were not requested while those are weighed, without a pause, by
   forks and by changes of rights elsewhere in them: no store is lost. Arguments: how many threads,
   for how many seconds, a seed. */
#include "say.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define HUGE (2l << 20)
#define PAGES 512
#define REGIONS 8
/* The first pages of a region are there to have their rights changed. */
#define FIRST 4
/* Stores that say something. */
#define ENOUGH 1000

static char *memory;
static pthread_rwlock_t use = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static atomic_int over, turn_of_all;
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

static void look(struct writer *writer, int region, int page, uint32_t expected)
{
	uint32_t word = ((volatile uint32_t *)(memory + region * HUGE + page * PAGE))[writer->number];
	if (word != expected && atomic_fetch_add(&lost, 1) < 10)
		say("page %d of region %d shows %u, not %u", page, region, word, expected);
}

/* Each thread has a word of its own in each page, and knows what it stored there in this round. */
static void *run(void *argument)
{
	struct writer *writer = argument;
	static __thread uint32_t known[REGIONS][PAGES];
	uint32_t value = 0;
	int done = 0;
	while (!atomic_load(&over)) {
		if (atomic_load(&turn_of_all) == done) {
			sched_yield();
			continue;
		}
		pthread_rwlock_rdlock(&use);
		done = atomic_load(&turn_of_all);
		unsigned long first = writer->state;
		memset(known, 0, sizeof known);
		for (int again = 0; again < 2; again++) {
			/* The second time everything is only looked at. */
			writer->state = first;
			for (int turn = 0; turn < 400; turn++) {
				int region = random_below(&writer->state, REGIONS);
				int page = FIRST + random_below(&writer->state, PAGES - FIRST);
				look(writer, region, page, known[region][page]);
				if (random_below(&writer->state, 2) == 0 || again)
					continue;
				((volatile uint32_t *)(memory + region * HUGE + page * PAGE))[writer->number] = known[region][page] = ++value;
				atomic_fetch_add(&stores, 1);
			}
		}
		pthread_rwlock_unlock(&use);
	}
	return 0;
}

/* One thread uses a region while it is weighed: what it has read as zero stays so, although the frames are others' by then,
   and what it stores for the first time at that moment is there. */
static atomic_int go, stop, done;

static void await(atomic_int *counter, int turn)
{
	while (atomic_load(counter) < turn)
		sched_yield();
}

static long read_along(int turn)
{
	long wrong = 0;
	while (atomic_load(&stop) < turn)
		for (int page = 1; page < PAGES; page++)
			wrong += ((volatile uint64_t *)(memory + page * PAGE))[1] != 0;
	return wrong;
}

static long store_along(int turn)
{
	long wrong = 0;
	for (int page = PAGES - 1; page; page--)
		((volatile uint64_t *)(memory + page * PAGE))[1] = page;
	await(&stop, turn);
	for (int page = PAGES - 1; page; page--)
		wrong += ((volatile uint64_t *)(memory + page * PAGE))[1] != page;
	return wrong;
}

static int turns;

static void *race_along(void *along)
{
	for (int turn = 1; turn <= turns; turn++) {
		await(&go, turn);
		atomic_fetch_add(&lost, ((long (*)(int))along)(turn));
		atomic_store(&done, turn);
	}
	return 0;
}

static void race(const char *what, long (*along)(int), int count)
{
	pthread_t thread;
	char *others = MUST(mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	madvise(others, HUGE, MADV_NOHUGEPAGE);
	turns = count;
	go = stop = done = 0;
	pthread_create(&thread, 0, race_along, along);
	for (int turn = 1; turn <= turns; turn++) {
		MUST(madvise(memory, HUGE, MADV_DONTNEED));
		*memory = 1;
		atomic_store(&go, turn);
		for (volatile int wait = turn * 37 % 5000; wait > 0; wait--)
			;
		/* A part gets other rights: all of it is weighed. */
		MUST(mprotect(memory, PAGE, PROT_READ));
		for (int page = 0; page < PAGES; page++)
			((volatile uint64_t *)(others + page * PAGE))[1] = page + 1;
		atomic_store(&stop, turn);
		await(&done, turn);
		MUST(madvise(others, HUGE, MADV_DONTNEED));
		MUST(mprotect(memory, PAGE, PROT_READ | PROT_WRITE));
	}
	pthread_join(thread, 0);
	MUST(munmap(others, HUGE));
	say("%s: %s", what, atomic_load(&lost) ? "NO" : "yes");
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 4;
	int seconds = argc > 2 ? atoi(argv[2]) : 5;
	unsigned long seed = argc > 3 ? strtoul(argv[3], 0, 0) : 1, state = seed * 2654435761u + 1;
	/* A fork has all CPUs forget all entries, which hides what else does not. */
	unsigned kinds = seed % 2 ? 3 : 2;
	char *all = MUST(mmap(0, (REGIONS + 1) * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	memory = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE);
	race("what was read as zero stays so", read_along, 200);
	race("what is stored to first is kept", store_along, 1000);
	struct writer writers[16];
	for (int i = 0; i < threads && i < 16; i++) {
		writers[i].number = i;
		writers[i].state = state * (i + 3) | 1;
		pthread_create(&writers[i].thread, 0, run, &writers[i]);
	}
	double end = now() + seconds;
	/* Longer on a slow machine, where little has happened by then. */
	while (now() < end || atomic_load(&stores) <= ENOUGH || atomic_load(&weighed) <= REGIONS) {
		/* New ones, once no thread is in the middle of a round. */
		pthread_rwlock_wrlock(&use);
		MUST(madvise(memory, REGIONS * HUGE, MADV_DONTNEED));
		atomic_fetch_add(&turn_of_all, 1);
		pthread_rwlock_unlock(&use);
		for (int region = 0; region < REGIONS; region++) {
			char *start = memory + region * HUGE;
			switch (random_below(&state, kinds)) {
			case 0:
				MUST(mprotect(start, PAGE, PROT_READ));
				MUST(mprotect(start, PAGE, PROT_READ | PROT_WRITE));
				break;
			case 1:
				MUST(madvise(start + PAGE, PAGE, MADV_DONTNEED));
				break;
			default: {
				pid_t child = fork();
				if (child == 0)
					_exit(0);
				if (child > 0)
					MUST(waitpid(child, 0, 0));
			}
			}
			atomic_fetch_add(&weighed, 1);
		}
	}
	atomic_store(&over, 1);
	for (int i = 0; i < threads && i < 16; i++)
		pthread_join(writers[i].thread, 0);
	HOLDS(atomic_load(&lost) == 0);
}
