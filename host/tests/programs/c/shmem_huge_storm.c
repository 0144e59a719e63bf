/* Threads store to a file in memory by mappings and by calls, punch holes in it, drop and protect parts, while it is cut and
   grows again, is forked and mapped anew, and memory is compacted: every byte is what its owner knows. Arguments: how many
   threads, for how many seconds, a seed, `tmpfs` for a file with a name. */
#include "figures.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mount.h>

#define HUGE (2l << 20)
#define PAGES 512
#define REGIONS 8
#define BYTES (REGIONS * HUGE)
#define THREADS 8

static char *memory;
static int file, threads;
static atomic_int over;
static atomic_long lost, deeds;
static pthread_rwlock_t all = PTHREAD_RWLOCK_INITIALIZER;
/* What each page is full of. */
static uint64_t known[REGIONS * PAGES];

static unsigned random_below(unsigned long *state, unsigned bound)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 20) % bound;
}

static void complain(const char *how, long page, uint64_t shown)
{
	if (atomic_fetch_add(&lost, 1) < 10)
		say("%s: page %ld of region %ld shows %#lx, not %#lx", how, page % PAGES, page / PAGES, shown, known[page]);
}

static void look(const char *how, const volatile uint64_t *words, long page)
{
	for (int i = 0; i < PAGE / 8; i++)
		if (words[i] != known[page]) {
			complain(how, page, words[i]);
			return;
		}
}

/* A deed with some of the pages of a region that are this thread's. */
static void act(int self, unsigned long *state)
{
	static _Thread_local uint64_t buffer[PAGE / 8];
	static uint64_t value_of[THREADS];
	int share = PAGES / threads;
	long first = random_below(state, REGIONS) * PAGES + self * share;
	long page = first + random_below(state, share);
	long count = 1 + random_below(state, first + share - page);
	volatile uint64_t *words = (volatile uint64_t *)(memory + page * PAGE);
	uint64_t value = (uint64_t)self << 56 | ++value_of[self];

	switch (random_below(state, 9)) {
	case 0:
	case 1:
		look("by a mapping", words, page);
		for (int i = 0; i < PAGE / 8; i++)
			words[i] = value;
		known[page] = value;
		break;
	case 2:
		for (int i = 0; i < PAGE / 8; i++)
			buffer[i] = value;
		MUST(pwrite(file, buffer, PAGE, page * PAGE));
		known[page] = value;
		break;
	case 3:
		MUST(pread(file, buffer, PAGE, page * PAGE));
		look("by a call", buffer, page);
		break;
	case 4:
		MUST(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page * PAGE, count * PAGE));
		memset(known + page, 0, count * sizeof *known);
		break;
	case 5:
		MUST(madvise(memory + page * PAGE, count * PAGE, MADV_DONTNEED));
		break;
	case 6:
		MUST(mprotect(memory + page * PAGE, count * PAGE, PROT_READ));
		for (long i = page; i < page + count; i++)
			look("read-only", (volatile uint64_t *)(memory + i * PAGE), i);
		MUST(mprotect(memory + page * PAGE, count * PAGE, PROT_READ | PROT_WRITE));
		break;
	case 7:
		/* From a page to another by a call: both are pinned. */
		look("source", words, page);
		MUST(pwrite(file, (void *)words, PAGE, first * PAGE));
		known[first] = known[page];
		break;
	default:
		look("by a mapping", words, page);
	}
	atomic_fetch_add(&deeds, 1);
}

static void map(void)
{
	if (memory)
		MUST(munmap(memory, BYTES));
	memory = MUST(mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
}

/* What must not come between the others' deeds. */
static void act_alone(unsigned long *state)
{
	long region = random_below(state, REGIONS), page = random_below(state, REGIONS * PAGES);
	pid_t child;
	switch (random_below(state, 6)) {
	case 0:
	case 1:
		MUST(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, region * HUGE, HUGE));
		memset(known + region * PAGES, 0, PAGES * sizeof *known);
		break;
	case 2:
		MUST(ftruncate(file, page * PAGE + 8));
		MUST(ftruncate(file, BYTES));
		if (known[page]) {
			/* The first word is left. */
			uint64_t zero[PAGE / 8] = { 0 };
			MUST(pwrite(file, zero, 8, page * PAGE));
		}
		memset(known + page, 0, (REGIONS * PAGES - page) * sizeof *known);
		break;
	case 3:
		map();
		break;
	case 4:
		child = fork();
		if (child == 0) {
			for (long i = 0; i < PAGES; i++)
				look("in a child", (volatile uint64_t *)(memory + region * HUGE + i * PAGE), region * PAGES + i);
			_exit(atomic_load(&lost) != 0);
		}
		if (child > 0) {
			int status;
			MUST(waitpid(child, &status, 0));
			if (status)
				complain("in a child", region * PAGES, status);
		}
		break;
	default:
		MUST(munmap(memory + region * HUGE, HUGE));
		MUST(mmap(memory + region * HUGE, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, region * HUGE));
	}
}

struct actor {
	pthread_t thread;
	int number;
	unsigned long state;
};

static void *run(void *argument)
{
	struct actor *actor = argument;
	while (!atomic_load(&over)) {
		pthread_rwlock_rdlock(&all);
		for (int i = 0; i < 20; i++)
			act(actor->number, &actor->state);
		pthread_rwlock_unlock(&all);
	}
	return 0;
}

static void *compact(void *unused)
{
	int fd = open("/proc/sys/vm/compact_memory", O_WRONLY);
	while (!atomic_load(&over) && fd >= 0) {
		MUST(write(fd, "1", 1));
		sleep_ms(3);
	}
	return unused;
}

int main(int argc, char **argv)
{
	threads = argc > 1 ? atoi(argv[1]) : 4;
	int seconds = argc > 2 ? atoi(argv[2]) : 5;
	unsigned long seed = argc > 3 ? strtoul(argv[3], 0, 0) : 1, state = seed * 2654435761u + 1;
	static struct actor actors[THREADS];
	pthread_rwlockattr_t attributes;
	pthread_t compactor;
	/* Who acts alone would wait for ever for many readers. */
	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&all, &attributes);
	if (argc > 4 && !strcmp(argv[4], "tmpfs")) {
		mkdir("/mnt", 0755);
		MUST(mount("none", "/mnt", "tmpfs", 0, "size=20m,huge=always"));
		file = MUST(open("/mnt/file", O_RDWR | O_CREAT, 0600));
	} else {
		int fd = MUST(open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_WRONLY));
		MUST(write(fd, "always", 6));
		close(fd);
		file = MUST(memfd_create("file", 0));
	}
	MUST(ftruncate(file, BYTES));
	map();
	long made = number("/proc/vmstat", "thp_file_alloc "), shown = number("/proc/vmstat", "thp_file_mapped ");
	long moved = number("/proc/vmstat", "pgmigrate_success ");
	for (int i = 0; i < threads && i < THREADS; i++) {
		actors[i].number = i;
		actors[i].state = state * (i + 3) | 1;
		pthread_create(&actors[i].thread, 0, run, &actors[i]);
	}
	pthread_create(&compactor, 0, compact, 0);
	double end = now() + seconds;
	while (now() < end || number("/proc/vmstat", "thp_file_mapped ") == shown || atomic_load(&deeds) <= 100) {
		pthread_rwlock_wrlock(&all);
		act_alone(&state);
		pthread_rwlock_unlock(&all);
		sleep_ms(2);
	}
	atomic_store(&over, 1);
	pthread_join(compactor, 0);
	for (int i = 0; i < threads && i < THREADS; i++)
		pthread_join(actors[i].thread, 0);
	for (long page = 0; page < REGIONS * PAGES; page++)
		look("in the end", (volatile uint64_t *)(memory + page * PAGE), page);
	if (argc > 5)
		say("%ld deeds, %ld made, %ld mapped, %ld moved", deeds, number("/proc/vmstat", "thp_file_alloc ") - made,
		    number("/proc/vmstat", "thp_file_mapped ") - shown, number("/proc/vmstat", "pgmigrate_success ") - moved);
	HOLDS(number("/proc/vmstat", "thp_file_alloc ") > made);
	HOLDS(number("/proc/vmstat", "thp_file_mapped ") > shown);
	HOLDS(atomic_load(&deeds) > 100);
	HOLDS(atomic_load(&lost) == 0);
	MUST(munmap(memory, BYTES));
	close(file);
	unlink("/mnt/file");
	HOLDS(number("/proc/meminfo", "ShmemHugePages:") == 0);
	HOLDS(number("/proc/meminfo", "ShmemPmdMapped:") == 0);
	return 0;
}
