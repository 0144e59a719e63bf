/* Memory that is free in pieces: what becomes whole again when it is asked for, and what the programs see of it.
 * Argument: what to do. */
#include "pool.h"
#include <sys/wait.h>

#define COMPACT "/proc/sys/vm/compact_memory"

/* Free memory in blocks of 2 MiB and more, in percent of all that is free. */
static long whole(void)
{
	char line[256];
	long pages = 0;
	FILE *file = fopen("/proc/buddyinfo", "r");

	while (file && fgets(line, sizeof line, file)) {
		long counts[11] = {0};
		char *at = strstr(line, "zone");

		if (!at)
			continue;
		/* Behind the zone's name. */
		at += strcspn(at, " ");
		at += strspn(at, " ");
		at += strcspn(at, " ");
		for (int order = 0; order < 11; order++)
			counts[order] = strtol(at, &at, 10);
		pages += counts[9] * 512 + counts[10] * 1024;
	}
	if (file)
		fclose(file);
	return pages * 400 / meminfo("MemFree");
}

static size_t stamp(size_t page)
{
	return (page + 1) * 0x9e3779b97f4a7c15UL;
}

static size_t *word(char *memory, size_t page)
{
	return (size_t *)(memory + page * 4096 + page * 8 % 4096);
}

static char *map(size_t pages)
{
	char *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
	return memory;
}

/* Stores to each page, and gives all but every `nth` back. */
static void fill(char *memory, size_t pages, size_t nth)
{
	for (size_t page = 0; page < pages; page++)
		*word(memory, page) = stamp(page);
	for (size_t page = 0; page < pages; page++)
		if (page % nth)
			madvise(memory + page * 4096, 4096, MADV_DONTNEED);
}

static void check(char *memory, size_t pages, size_t nth)
{
	size_t wrong = 0;

	for (size_t page = 0; page < pages; page++)
		wrong += *word(memory, page) != (page % nth ? 0 : stamp(page));
	printf("wrong pages: %zu\n", wrong);
}

static size_t half(void)
{
	return meminfo("MemTotal") / 8;
}

/* What is free in pieces becomes whole. */
static void ask(void)
{
	size_t pages = half();
	char *memory = map(pages);

	fill(memory, pages, 4);
	printf("before: %s\n", whole() < 70 ? "in pieces" : "whole");
	write_knob(COMPACT, 1);
	printf("after: %s\n", whole() >= 95 ? "whole" : "in pieces");
	printf("moved: %s\n", vmstat("pgmigrate_success") > (long)pages / 8 ? "many" : "few");
	check(memory, pages, 4);
}

/* The same without being asked, after a while. */
static void wait_for_it(void)
{
	size_t pages = half();
	char *memory = map(pages);

	fill(memory, pages, 4);
	for (int tenth = 0; tenth < 3000 && whole() < 95; tenth++)
		usleep(100000);
	printf("after a while: %s\n", whole() >= 95 ? "whole" : "in pieces");
	check(memory, pages, 4);
}

/* Huge pages on demand in such memory, as many as there is memory for. */
static void demand(int may)
{
	size_t pages = half(), huge;
	char *memory = map(pages), *wanted;
	long before;

	write_knob("/proc/sys/vm/compaction_proactiveness", 0);
	fill(memory, pages, 4);
	before = whole();
	huge = meminfo("MemFree") / 2048 * 9 / 10;
	wanted = mmap(NULL, (huge + 1) * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	wanted = (char *)(((size_t)wanted + HUGE - 1) & ~(HUGE - 1));
	madvise(wanted, huge * HUGE, MADV_HUGEPAGE);
	for (size_t at = 0; at < huge; at++)
		wanted[at * HUGE] = 1;
	long got = meminfo("AnonHugePages") / 2048;
	printf("huge pages: %s\n", got == (long)huge ? "all" : got <= (before + 2) * (long)huge / 90 ? "what was whole" : "some");
	printf("stalls: %s\n", vmstat("compact_stall") > 0 ? "some" : "none");
	if (may)
		printf("each got one: %s\n", vmstat("compact_success") == vmstat("compact_stall") ? "yes" : "no");
	check(memory, pages, 4);
}

/* A pool of huge pages grows in it. */
static void pool(void)
{
	size_t pages = half();
	char *memory = map(pages);

	fill(memory, pages, 4);
	long wanted = meminfo("MemFree") / 2048 * 9 / 10;
	write_knob(POOL, wanted);
	printf("pool: %s\n", meminfo("HugePages_Total") == wanted ? "all" : "fewer");
	write_knob(POOL, 0);
	check(memory, pages, 4);
}

/* Locked memory stays where it is, if that is asked for. */
static void locked(void)
{
	size_t pages = half();
	char *memory = map(pages);

	fill(memory, pages, 4);
	for (size_t page = 0; page < pages; page += 4)
		mlock(memory + page * 4096, 4096);
	long before = whole();
	write_knob("/proc/sys/vm/compact_unevictable_allowed", 0);
	write_knob("/proc/sys/vm/compact_memory", 1);
	printf("locked: %s\n", whole() <= before + 10 ? "in pieces" : "whole");
	write_knob("/proc/sys/vm/compact_unevictable_allowed", 1);
	write_knob("/proc/sys/vm/compact_memory", 1);
	printf("allowed: %s\n", whole() >= 95 ? "whole" : "in pieces");
	check(memory, pages, 4);
}

/* What mremap has moved to another place in its regions moves, too. */
static void moved(void)
{
	size_t pages = half();
	char *memory = map(pages);
	char *room = mmap(NULL, pages * 4096 + 16 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *place = room + ((memory - room) & (HUGE - 1)) + 5 * 4096;

	for (size_t page = 0; page < pages; page++)
		*word(memory, page) = stamp(page);
	if (mremap(memory, pages * 4096, pages * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place)
		perror("mremap");
	for (size_t page = 0; page < pages; page++)
		if (page % 4)
			madvise(place + page * 4096, 4096, MADV_DONTNEED);
	write_knob(COMPACT, 1);
	printf("after: %s\n", whole() >= 95 ? "whole" : "in pieces");
	check(place, pages, 4);
}

/* Together with the parent they map a batch of frames by more entries than are moved at once. */
#define CHILDREN 8

/* Pages that processes share since a fork move once for all of them. */
static void shared(void)
{
	size_t pages = half();
	char *memory = map(pages);
	int status, go[2], ready[2];
	char byte = 0;

	if (pipe(go) || pipe(ready))
		perror("pipe");
	fill(memory, pages, 4);
	for (int child = 0; child < CHILDREN; child++)
		if (fork() == 0) {
			if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
				_exit(2);
			size_t wrong = 0;
			for (size_t page = 0; page < pages; page += 4)
				wrong += *word(memory, page) != stamp(page);
			_exit(wrong != 0);
		}
	for (int child = 0; child < CHILDREN; child++)
		if (read(ready[0], &byte, 1) != 1)
			perror("read");
	long anonymous = meminfo("AnonPages");
	write_knob(COMPACT, 1);
	printf("after: %s\n", whole() >= 95 ? "whole" : "in pieces");
	printf("shared still: %s\n", meminfo("AnonPages") < anonymous * 11 / 10 ? "yes" : "no");
	if (write(go[1], "12345678", CHILDREN) != CHILDREN)
		perror("write");
	while (wait(&status) > 0)
		printf("child: %x\n", status);
	check(memory, pages, 4);
}

/* The one word that is used of each region of 2 MiB. */
static size_t *far_word(char *memory, size_t region)
{
	return (size_t *)(memory + region * HUGE + region % 512 * 4096 + region * 8 % 4096);
}

/* Adds 1 to each word again and again until it is told to stop; whether any lost some. */
static void count_up(char *memory, size_t regions, int stop)
{
	size_t rounds = 0, wrong = 0;
	char byte;

	fcntl(stop, F_SETFL, O_NONBLOCK);
	while (read(stop, &byte, 1) != 1) {
		for (size_t region = 0; region < regions; region += 4)
			++*far_word(memory, region);
		rounds++;
	}
	for (size_t region = 0; region < regions; region += 4)
		wrong += *far_word(memory, region) != stamp(region) + rounds;
	_exit(wrong != 0 || rounds == 0);
}

static char *regions_of(size_t regions)
{
	char *memory = mmap(NULL, (regions + 1) * HUGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return (char *)(((size_t)memory + HUGE - 1) & ~(HUGE - 1));
}

/* Page tables move, while their program runs, and where mremap has moved them. */
static void page_tables(void)
{
	size_t regions = half() / 2, wrong = 0;
	char *memory = regions_of(regions);
	int status, stop[2];

	madvise(memory, regions * HUGE, MADV_NOHUGEPAGE);
	for (size_t region = 0; region < regions; region++)
		*far_word(memory, region) = stamp(region);
	for (size_t region = 0; region < regions; region++)
		if (region % 4)
			munmap(memory + region * HUGE, HUGE);
	/* There and back: every second of them by a table that another region had. */
	for (size_t region = 0; region < regions; region += 8) {
		char *from = memory + region * HUGE, *to = from + 2 * HUGE;

		if (mremap(from, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to ||
		    mremap(to, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, from) != from)
			perror("mremap");
	}
	if (pipe(stop))
		perror("pipe");
	pid_t child = fork();
	if (child == 0)
		count_up(memory, regions, stop[0]);
	printf("before: %s\n", whole() < 70 ? "in pieces" : "whole");
	write_knob(COMPACT, 1);
	printf("after: %s\n", whole() >= 95 ? "whole" : "in pieces");
	printf("moved: %s\n", vmstat("pgmigrate_success") > (long)regions / 8 ? "many" : "few");
	if (write(stop[1], "1", 1) != 1)
		perror("write");
	waitpid(child, &status, 0);
	for (size_t region = 0; region < regions; region += 4)
		wrong += *far_word(memory, region) != stamp(region);
	printf("child: %x\nwrong words: %zu\n", status, wrong);
}

/* So do tables that are in reserve for huge pages. */
static void reserve(void)
{
	size_t regions = meminfo("MemFree") / 2048 / 2, wrong = 0;
	char *memory = regions_of(regions), *between = map(regions * 7);

	madvise(memory, regions * HUGE, MADV_HUGEPAGE);
	/* A table for each huge page, and seven pages behind it. */
	for (size_t region = 0; region < regions; region++) {
		*far_word(memory, region) = stamp(region);
		for (size_t page = region * 7; page < region * 7 + 7; page++)
			*word(between, page) = stamp(page);
	}
	printf("huge pages: %s\n", meminfo("AnonHugePages") == (long)regions * 2048 ? "all" : "fewer");
	/* What is left of those blocks is tables. */
	for (size_t page = 0; page < regions * 7; page++)
		madvise(between + page * 4096, 4096, MADV_DONTNEED);
	write_knob(COMPACT, 1);
	printf("moved: %s\n", vmstat("pgmigrate_success") > (long)regions / 3 ? "many" : "few");
	/* The tables are needed. */
	for (size_t region = 0; region < regions; region++) {
		size_t page = region % 512;

		madvise(memory + region * HUGE + (page + 1) % 512 * 4096, 4096, MADV_DONTNEED);
		wrong += *far_word(memory, region) != stamp(region);
		wrong += *far_word(memory, region) - stamp(region) != *(size_t *)(memory + region * HUGE + (page + 1) % 512 * 4096);
	}
	printf("huge pages: %ld, wrong words: %zu\n", meminfo("AnonHugePages"), wrong);
}

/* Pages of a file move, mapped or not, and so do those of shared memory. */
static void file_pages(int mapped)
{
	size_t pages = half(), wrong = 0, got = 0;
	int fd = memfd_create("file", 0);
	char *memory = NULL;
	size_t value[512];

	if (fd < 0 || ftruncate(fd, pages * 4096))
		perror("memfd");
	if (mapped)
		memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (size_t page = 0; page < pages; page++) {
		for (int at = 0; at < 512; at++)
			value[at] = stamp(page) + at;
		if (mapped)
			memcpy(memory + page * 4096, value, 4096);
		else if (pwrite(fd, value, 4096, page * 4096) != 4096)
			perror("write");
	}
	for (size_t page = 0; page < pages; page++)
		if (page % 4)
			fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page * 4096, 4096);
	printf("before: %s\n", whole() < 70 ? "in pieces" : "whole");
	write_knob(COMPACT, 1);
	printf("after: %s\n", whole() >= 95 ? "whole" : "in pieces");
	for (size_t page = 0; page < pages; page++) {
		got += pread(fd, value, 4096, page * 4096) == 4096;
		for (int at = 0; at < 512; at++) {
			wrong += value[at] != (page % 4 ? 0 : stamp(page) + at);
			if (mapped)
				wrong += ((size_t *)(memory + page * 4096))[at] != value[at];
		}
	}
	printf("read: %s, wrong words: %zu\n", got == pages ? "all" : "fewer", wrong);
}

/* Makes a file of `pages` pages, whose content only the disk or the host has afterwards. */
static int cold_file(const char *path, size_t pages)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	size_t value[512];

	if (fd < 0)
		perror(path);
	for (size_t page = 0; page < pages; page++) {
		for (int at = 0; at < 512; at++)
			value[at] = stamp(page) + at;
		if (pwrite(fd, value, 4096, page * 4096) != 4096)
			perror("write");
	}
	if (fsync(fd) < 0)
		perror("fsync");
	write_knob("/proc/sys/vm/drop_caches", 1);
	return fd;
}

/* Cached pages of a disk or of a volume move, mapped or not. A mapping and the file have the same bytes after that. */
static void cached_pages(const char *path, int mapped)
{
	enum { RUN = 16 };
	size_t pages = half() / 4 / RUN * RUN, wrong = 0;
	int fd = cold_file(path, pages);
	char *other = map(3 * pages), *memory = NULL;
	size_t value[512];
	long before;

	if (mapped) {
		memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (memory == MAP_FAILED)
			perror("mmap");
	}
	/* A run of cached pages is followed by three of other memory, which is freed then. */
	for (size_t page = 0; page < pages; page++) {
		if (mapped)
			wrong += *(volatile size_t *)(memory + page * 4096) != stamp(page);
		else if (pread(fd, value, 4096, page * 4096) != 4096)
			perror("read");
		if (page % RUN == RUN - 1)
			for (size_t next = page + 1 - RUN; next <= page; next++)
				for (size_t at = 3 * next; at < 3 * next + 3; at++)
					*word(other, at) = stamp(at);
	}
	munmap(other, 3 * pages * 4096);
	printf("before: %s\n", whole() < 75 ? "in pieces" : "whole");
	before = vmstat("pgmigrate_success");
	write_knob(COMPACT, 1);
	printf("after: %s\n", whole() >= 95 ? "whole" : "in pieces");
	printf("moved: %s\n", vmstat("pgmigrate_success") - before > (long)pages / 4 ? "many" : "few");
	for (size_t page = 0; page < pages; page++) {
		if (mapped)
			((size_t *)(memory + page * 4096))[511] = page;
		if (pread(fd, value, 4096, page * 4096) != 4096)
			perror("read");
		for (int at = 0; at < 511; at++)
			wrong += value[at] != stamp(page) + at;
		wrong += value[511] != (mapped ? page : stamp(page) + 511);
	}
	printf("wrong words: %zu\n", wrong);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(what, "ask"))
		ask();
	else if (!strcmp(what, "wait"))
		wait_for_it();
	else if (!strcmp(what, "demand"))
		demand(1);
	else if (!strcmp(what, "never"))
		demand(0);
	else if (!strcmp(what, "pool"))
		pool();
	else if (!strcmp(what, "locked"))
		locked();
	else if (!strcmp(what, "moved"))
		moved();
	else if (!strcmp(what, "shared"))
		shared();
	else if (!strcmp(what, "tables"))
		page_tables();
	else if (!strcmp(what, "reserve"))
		reserve();
	else if (!strcmp(what, "file"))
		file_pages(0);
	else if (!strcmp(what, "mapping"))
		file_pages(1);
	else if (!strcmp(what, "cached") && argc == 3)
		cached_pages(argv[2], 0);
	else if (!strcmp(what, "cached-mapping") && argc == 3)
		cached_pages(argv[2], 1);
	else
		return 2;
	return 0;
}
