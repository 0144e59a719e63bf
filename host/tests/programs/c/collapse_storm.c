/* Threads store to pages, directly and by calls, while those are joined to huge pages, by the program and by khugepaged, and
   parted again, with forks and with compaction: no store is lost. Arguments: how many threads, for how many seconds, a seed. */
#include "say.h"
#include <pthread.h>
#include <stdatomic.h>

#define HUGE (2l << 20)
#define PAGES 512
#define REGIONS 6
/* The first pages of a region are there to be given up and to have their rights changed. */
#define FIRST 4
#define WRITERS 16
#define MADV_COLLAPSE 25

static char *memory;
static atomic_int over;
static atomic_long stores, lost, joined, in_use;

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
	uint32_t known[REGIONS][PAGES];
};

static volatile uint32_t *word_of(struct writer *writer, int region, int page)
{
	return (volatile uint32_t *)(memory + region * HUGE + page * PAGE) + writer->number;
}

static void look(struct writer *writer, int region, int page)
{
	uint32_t word = *word_of(writer, region, page);
	if (word != writer->known[region][page] && atomic_fetch_add(&lost, 1) < 10)
		say("page %d of region %d shows %u, not %u", page, region, word, writer->known[region][page]);
}

/* Each thread has a word of its own in each page, and knows what it stored there. */
static void *run(void *argument)
{
	struct writer *writer = argument;
	uint32_t value = 0;
	int ends[2];
	MUST(pipe(ends));
	while (!atomic_load(&over)) {
		int region = random_below(&writer->state, REGIONS);
		int page = FIRST + random_below(&writer->state, PAGES - FIRST);
		look(writer, region, page);
		value++;
		if (random_below(&writer->state, 4) == 0) {
			MUST(write(ends[1], &value, sizeof value));
			MUST(read(ends[0], (void *)word_of(writer, region, page), sizeof value));
		} else {
			*word_of(writer, region, page) = value;
		}
		writer->known[region][page] = value;
		atomic_fetch_add(&stores, 1);
		/* Pages are left alone for a while, so that some are joined. */
		if (random_below(&writer->state, 300) == 0)
			sleep_ms(random_below(&writer->state, 20));
	}
	for (int region = 0; region < REGIONS; region++)
		for (int page = FIRST; page < PAGES; page++)
			look(writer, region, page);
	return 0;
}

static void *compact(void *unused)
{
	int fd = open("/proc/sys/vm/compact_memory", O_WRONLY);
	while (!atomic_load(&over) && fd >= 0) {
		MUST(write(fd, "1", 1));
		sleep_ms(5);
	}
	return unused;
}

static void set(const char *name, const char *value)
{
	char path[128];
	snprintf(path, sizeof path, "/sys/kernel/mm/transparent_hugepage/khugepaged/%s", name);
	int fd = MUST(open(path, O_WRONLY));
	MUST(write(fd, value, strlen(value)));
	close(fd);
}

/* Makes pages of what is joined. */
static void part(char *start, unsigned how)
{
	pid_t child;

	switch (how) {
	case 0:
		MUST(mprotect(start, PAGE, PROT_READ));
		MUST(mprotect(start, PAGE, PROT_READ | PROT_WRITE));
		break;
	case 1:
		MUST(madvise(start + PAGE, PAGE, MADV_DONTNEED));
		break;
	default:
		child = fork();
		if (child == 0) {
			for (int page = 0; page < PAGES; page += 3)
				*(volatile int *)(start + page * PAGE) = 1;
			madvise(start, HUGE, MADV_COLLAPSE);
			_exit(0);
		}
		if (child > 0)
			MUST(waitpid(child, 0, 0));
	}
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 4;
	int seconds = argc > 2 ? atoi(argv[2]) : 5;
	unsigned long seed = argc > 3 ? strtoul(argv[3], 0, 0) : 1, state = seed * 2654435761u + 1;
	/* A fork has all CPUs forget all entries, which hides what else does not. */
	unsigned kinds = seed % 2 ? 3 : 2;
	static struct writer writers[WRITERS];
	pthread_t compactor;
	char *all = MUST(mmap(0, (REGIONS + 1) * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	memory = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE);
	MUST(madvise(memory, REGIONS * HUGE, MADV_NOHUGEPAGE));
	for (long page = 0; page < REGIONS * PAGES; page += 2)
		memory[page * PAGE + PAGE - 1] = 1;
	MUST(madvise(memory, REGIONS * HUGE, MADV_HUGEPAGE));
	for (int i = 0; i < threads && i < WRITERS; i++) {
		writers[i].number = i;
		writers[i].state = state * (i + 3) | 1;
		pthread_create(&writers[i].thread, 0, run, &writers[i]);
	}
	pthread_create(&compactor, 0, compact, 0);
	set("max_ptes_none", "511");
	set("max_ptes_shared", seed % 2 ? "511" : "0");
	set("scan_sleep_millisecs", "0");
	/* On a busy machine it takes longer until enough has happened. */
	double start = now();
	while (now() < start + seconds ||
	       ((atomic_load(&stores) <= 1000 || atomic_load(&joined) == 0) && now() < start + 15 * seconds)) {
		char *region = memory + random_below(&state, REGIONS) * HUGE;
		if (madvise(region, HUGE, MADV_COLLAPSE) == 0)
			atomic_fetch_add(&joined, 1);
		else if (errno == EAGAIN)
			atomic_fetch_add(&in_use, 1);
		else
			say("joining fails: %s", strerrorname_np(errno));
		/* The others are khugepaged's. */
		part(memory + random_below(&state, REGIONS) * HUGE, random_below(&state, kinds));
	}
	atomic_store(&over, 1);
	pthread_join(compactor, 0);
	for (int i = 0; i < threads && i < WRITERS; i++)
		pthread_join(writers[i].thread, 0);
	if (argc > 4)
		say("joined %ld, in use %ld, stores %ld", joined, in_use, stores);
	HOLDS(atomic_load(&stores) > 1000 && atomic_load(&joined) > 0);
	HOLDS(atomic_load(&lost) == 0);
	return 0;
}
