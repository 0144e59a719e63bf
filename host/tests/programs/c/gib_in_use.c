/* A page of 1 GiB is made of memory whose pages could not move a moment ago, or is not. Argument: what keeps them. */
#include "pool.h"
#include <sched.h>
#include <sys/wait.h>

#define GIGANTIC "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"

static const size_t bytes = 2600UL << 20;

static void make_one(void)
{
	char text[32] = "";
	int fd;

	write_knob(GIGANTIC, 1);
	fd = open(GIGANTIC, O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
		perror(GIGANTIC);
	close(fd);
	printf("pages of 1 GiB: %s", text);
	write_knob(GIGANTIC, 0);
}

static char *fill(void)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < bytes; at += 4096)
		*(size_t *)(memory + at) = at + 1;
	return memory;
}

/* Frees all pages but one of each `step` bytes. */
static void thin(char *memory, size_t step)
{
	for (size_t at = 0; at < bytes; at += step)
		madvise(memory + at + 4096, (bytes - at < step ? bytes - at : step) - 4096, MADV_DONTNEED);
}

/* Pages are locked while memory is compacted. */
static void locked(void)
{
	const size_t step = 64UL << 20;
	char *memory = fill();
	size_t wrong = 0;

	write_knob("/proc/sys/vm/compact_unevictable_allowed", 0);
	thin(memory, HUGE);
	for (size_t at = 0; at < bytes; at += step)
		if (mlock(memory + at, 4096) < 0)
			perror("mlock");
	write_knob("/proc/sys/vm/compact_memory", 1);
	munlockall();
	make_one();
	for (size_t at = 0; at < bytes; at += HUGE)
		wrong += *(size_t *)(memory + at) != at + 1;
	printf("wrong pages: %zu\n", wrong);
}

static void stay_on(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof cpus, &cpus) < 0)
		perror("sched_setaffinity");
}

/* Another CPU has freed pages of all memory, and computes without end. */
static void cached(void)
{
	const size_t step = 32UL << 20;
	volatile int *is_free = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();

	if (child == 0) {
		char *memory;

		stay_on(1);
		memory = fill();
		thin(memory, step);
		for (size_t at = 0; at < bytes; at += step)
			madvise(memory + at, 4096, MADV_DONTNEED);
		*is_free = 1;
		for (;;)
			;
	}
	stay_on(0);
	while (!*is_free)
		usleep(1000);
	make_one();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* Pages of 2 MiB in use lie in all memory. They do not move, so nothing is to move for a page of 1 GiB. */
static void pooled(void)
{
	const size_t taken = 500UL << 20, every = 64;
	size_t pages;
	char *pool, *memory;
	long before;

	write_knob("/proc/sys/vm/hugetlb_optimize_vmemmap", 0);
	write_knob(POOL, 100000);
	pages = meminfo("HugePages_Total");
	pool = map_pool(pages * HUGE, MAP_PRIVATE);
	if (pool == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	for (size_t page = 0; page < pages; page++)
		pool[page * HUGE] = 1;
	for (size_t page = 0; page < pages; page++)
		if (page % every)
			munmap(pool + page * HUGE, HUGE);
	write_knob(POOL, 0);
	memory = mmap(NULL, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(memory, taken, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < taken; at += 4096)
		memory[at] = 1;
	before = vmstat("pgmigrate_success");
	make_one();
	printf("moved: %s\n", vmstat("pgmigrate_success") - before < 10000 ? "nothing" : "much");
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && !strcmp(argv[1], "locked"))
		locked();
	else if (argc == 2 && !strcmp(argv[1], "cached"))
		cached();
	else if (argc == 2 && !strcmp(argv[1], "pooled"))
		pooled();
	else
		return 2;
	return 0;
}
