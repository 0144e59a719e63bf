/* When kcompactd compacts before memory is asked for, and down to what. Nothing else empties blocks: the guest gives
 * nothing back, or vm.compaction_proactiveness is 0. Argument: what to look at. */
#include "pool.h"
#include <time.h>

#define KNOB "/proc/sys/vm/compaction_proactiveness"
#define MIN_FREE "/proc/sys/vm/min_free_kbytes"
/* How far low and high are apart, and high and a score that is clearly above or below. */
#define APART 10
#define CLEARLY 5

/* What kcompactd has looked at, and all frames that were moved. */
static long work(void)
{
	return vmstat("compact_daemon_migrate_scanned") + vmstat("pgmigrate_success");
}

/* The free memory of a zone that is in no block of 2 MiB, in percent. The zones count from 0; -1: there is none. */
static long pieces(int wanted)
{
	char line[256];
	long percent = -1;
	FILE *file = fopen("/proc/buddyinfo", "r");

	for (int zone = 0; file && fgets(line, sizeof line, file); zone++) {
		long free = 0, whole = 0;
		char *at = strstr(line, "zone");

		if (!at || zone != wanted)
			continue;
		at += strcspn(at, " ");
		at += strspn(at, " ");
		at += strcspn(at, " ");
		for (int order = 0; order < 11; order++) {
			long frames = strtol(at, &at, 10) << order;

			free += frames;
			if (order >= 9)
				whole += frames;
		}
		percent = free ? (free - whole) * 100 / free : 0;
	}
	if (file)
		fclose(file);
	return percent;
}

/* A watermark of the first zone, in frames. */
static long watermark(const char *name)
{
	char line[128], word[32];
	long value = -1, frames;
	FILE *file = fopen("/proc/zoneinfo", "r");

	while (value < 0 && file && fgets(line, sizeof line, file))
		if (sscanf(line, "%31s %ld", word, &frames) == 2 && !strcmp(word, name))
			value = frames;
	if (file)
		fclose(file);
	return value;
}

static char *map(size_t pages)
{
	char *memory = mmap(NULL, pages * 4096 + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	memory = (char *)(((size_t)memory + HUGE - 1) & ~(HUGE - 1));
	madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
	return memory;
}

static void fill(char *memory, size_t pages)
{
	for (size_t page = 0; page < pages; page++)
		*(size_t *)(memory + page * 4096) = page + 1;
}

/* Gives back the pages whose number modulo 4 is `kept` or more. */
static void thin(char *memory, size_t pages, size_t kept)
{
	for (size_t page = 0; page < pages; page++)
		if (page % 4 >= kept)
			madvise(memory + page * 4096, 4096, MADV_DONTNEED);
}

static void check(char *memory, size_t pages, size_t kept)
{
	size_t wrong = 0;

	for (size_t page = 0; page < pages; page++)
		wrong += *(size_t *)(memory + page * 4096) != (page % 4 >= kept ? 0 : page + 1);
	printf("wrong pages: %zu\n", wrong);
}

/* The pages of a share of the free memory, in percent, rounded to whole blocks. */
static size_t share(long percent)
{
	return meminfo("MemFree") * percent / 100 / 2048 * 512;
}

/* Lets some tenths of a second pass, in which a little memory comes and goes, so that kcompactd looks. */
static void pass(int tenths)
{
	for (int tenth = 0; tenth < tenths; tenth++) {
		char *memory = map(512);

		fill(memory, 512);
		munmap(memory, 512 * 4096);
		usleep(100000);
	}
}

/* Waits until a zone's fragmentation is at most a number of percent. */
static void await(int zone, long percent)
{
	for (int turn = 0; turn < 600 && pieces(zone) > percent; turn++)
		pass(5);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* Waits until no frame has been moved for two seconds. Returns when the last one was, or when the
 * wait began. */
static double settle(void)
{
	long before = work();
	double last = seconds();

	for (int calm = 0; calm < 20;) {
		pass(1);
		calm++;
		if (work() != before) {
			before = work();
			last = seconds();
			calm = 0;
		}
	}
	return last;
}

/* Whether kcompactd works within a few seconds. */
static const char *works(void)
{
	long before = work();

	pass(40);
	return work() == before ? "no" : "yes";
}

/* Whether kcompactd still works when it has come to rest. It may have stood still only because its CPU did, which a busy host
 * causes, and then it is looked at again. */
static const char *works_on(void)
{
	const char *answer = "yes";

	for (int turn = 0; turn < 20 && strcmp(answer, "no"); turn++) {
		settle();
		answer = works();
	}
	return answer;
}

/* Sets the knob so that the high threshold is `high`. */
static void set_high(long high)
{
	write_knob(KNOB, 100 + APART - high);
}

/* A score below the high threshold does nothing. A write that lowers the threshold has it begin, and it goes on with blocks
 * that are cheap as far as it can. */
static void begins(void)
{
	size_t pages = share(60);
	char *memory = map(pages);

	write_knob(KNOB, 0);
	fill(memory, pages);
	thin(memory, pages, 1);
	set_high(pieces(0) + CLEARLY);
	printf("below high: %s\n", works());
	set_high(pieces(0) - CLEARLY);
	await(0, 6);
	printf("above high: %s\n", pieces(0) <= 6 ? "whole" : "in pieces");
	printf("after it: %s\n", works_on());
	check(memory, pages, 1);
}

/* Blocks more than half of which is in use are emptied until the zone is at the low threshold, and not beyond it. */
static void ends(void)
{
	size_t pages = share(90);
	char *memory = map(pages);
	long low;

	write_knob(KNOB, 0);
	fill(memory, pages);
	thin(memory, pages, 3);
	low = pieces(0) - CLEARLY - APART;
	write_knob(KNOB, 100 - low);
	await(0, low);
	settle();
	printf("low: %s\n", pieces(0) > low ? "not reached" : pieces(0) < low - 2 * CLEARLY ? "passed" : "reached");
	check(memory, pages, 3);
}

/* Each zone by itself, however small its part of memory. */
static void zones(void)
{
	size_t pages = share(96);
	char *memory = map(pages);

	write_knob(KNOB, 0);
	fill(memory, pages);
	thin(memory, pages, 1);
	printf("zones: %s\n", pieces(1) < 0 ? "one" : "two");
	write_knob(KNOB, 20);
	await(0, 6);
	await(1, 6);
	printf("the first: %s\n", pieces(0) <= 6 ? "whole" : "in pieces");
	printf("the other: %s\n", pieces(1) <= 6 ? "whole" : "in pieces");
	check(memory, pages, 1);
}

/* Nothing is moved while a zone is low on memory, though there is room. */
static void guard(void)
{
	long before = 0, total = meminfo("MemTotal"), target;
	size_t pages = 60 << 8;
	char *memory = map(pages), *filler;
	char text[32] = "";
	int fd = open(MIN_FREE, O_RDONLY);

	if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
		perror(MIN_FREE);
	close(fd);
	before = atol(text);
	write_knob(KNOB, 0);
	fill(memory, pages);
	thin(memory, pages, 2);
	write_knob(MIN_FREE, total / 8);
	target = watermark("min") + (watermark("low") - watermark("min")) * 5 / 8;
	write_knob(MIN_FREE, before);
	/* Whole blocks are used up, as the rest would go to where pages are missing. */
	filler = map(meminfo("MemFree") / 4);
	madvise(filler, meminfo("MemFree") * 1024, MADV_HUGEPAGE);
	for (size_t at = 0; meminfo("MemFree") / 4 > target; at += HUGE)
		filler[at] = 1;
	write_knob(MIN_FREE, total / 8);
	/* A request finds that. */
	pass(2);
	write_knob(KNOB, 60);
	printf("in pieces: %s\n", pieces(0) > 60 ? "most" : "little");
	printf("low on memory: %s\n", works());
	write_knob(MIN_FREE, before);
	await(0, 40);
	printf("no longer: %s\n", pieces(0) <= 40 ? "whole" : "in pieces");
	check(memory, pages, 2);
}

/* Where nothing can be moved, it tries and lets 64 looks pass. */
static void deferral(void)
{
	size_t pages = share(90);
	char *memory = map(pages);
	double tried;
	long before, runs;

	write_knob(KNOB, 0);
	write_knob("/proc/sys/vm/compact_unevictable_allowed", 0);
	fill(memory, pages);
	thin(memory, pages, 1);
	for (size_t page = 0; page < pages; page += 4)
		mlock(memory + page * 4096, 4096);
	before = work();
	write_knob(KNOB, 40);
	for (int turn = 0; turn < 600 && work() == before; turn++)
		pass(1);
	tried = settle();
	before = work();
	runs = vmstat("compact_daemon_run");
	for (int turn = 0; turn < 1200 && work() == before; turn++)
		pass(1);
	printf("tries again: %s\n", work() == before ? "never" : seconds() - tried < 25 ? "soon" : "after a while");
	settle();
	printf("counted: %s\n", vmstat("compact_daemon_run") > runs ? "yes" : "no");
	write_knob("/proc/sys/vm/compact_unevictable_allowed", 1);
	munlockall();
	/* Below the high threshold, blocks that did not move before are left alone. */
	await(0, 60);
	printf("once it moves: %s\n", pieces(0) <= 60 ? "whole" : "in pieces");
	check(memory, pages, 1);
}

/* Whether a frame is moved while no memory comes or goes, within some minutes. */
static const char *moves_by_itself(int minutes)
{
	long before = vmstat("pgmigrate_success");

	for (int turn = 0; turn < minutes; turn++) {
		usleep(50000000);
		if (vmstat("pgmigrate_success") != before)
			return "yes";
	}
	return "no";
}

/* Leaves one of four pages of some memory, which is locked and may not move. kcompactd tries in vain. */
static void try_in_vain(char *locked, size_t pages)
{
	long before;

	write_knob("/proc/sys/vm/compact_unevictable_allowed", 0);
	thin(locked, pages, 1);
	for (size_t page = 0; page < pages; page += 4)
		mlock(locked + page * 4096, 4096);
	before = work();
	write_knob(KNOB, 40);
	for (int turn = 0; turn < 600 && work() == before; turn++)
		pass(1);
	settle();
}

/* Memory that is freed in the pause after a vain run is not forgotten. */
static void paused(void)
{
	size_t pages = share(45);
	char *locked = map(pages), *other = map(pages);

	write_knob(KNOB, 0);
	fill(locked, pages);
	fill(other, pages);
	try_in_vain(locked, pages);
	thin(other, pages, 1);
	printf("freed in the pause: %s\n", moves_by_itself(4));
	check(locked, pages, 1);
	check(other, pages, 1);
}

/* Locked memory that may move from now on is moved without a further reason. */
static void allowed(void)
{
	size_t pages = share(90);
	char *locked = map(pages);

	write_knob(KNOB, 0);
	fill(locked, pages);
	try_in_vain(locked, pages);
	write_knob("/proc/sys/vm/compact_unevictable_allowed", 1);
	printf("moves: %s\n", moves_by_itself(1));
	check(locked, pages, 1);
}

/* Some hundred blocks with few frames, which are locked and may not move, hide blocks with more frames for a while only. */
static void hidden(void)
{
	const size_t few = 8;
	size_t pages = share(50), others = share(40), wrong = 0;
	char *locked = map(pages), *other = map(others);
	long before;

	write_knob(KNOB, 0);
	write_knob("/proc/sys/vm/compact_unevictable_allowed", 0);
	fill(locked, pages);
	fill(other, others);
	for (size_t page = 0; page < pages; page += 512) {
		madvise(locked + (page + few) * 4096, (512 - few) * 4096, MADV_DONTNEED);
		mlock(locked + page * 4096, few * 4096);
	}
	thin(other, others, 1);
	printf("locked: %s\n", pages / 512 > 272 ? "in more blocks than are remembered" : "too little");
	before = vmstat("pgmigrate_success");
	write_knob(KNOB, 40);
	/* A quarter of the others is left. A half of that has moved when most of them are whole. */
	for (int turn = 0; turn < 24 && vmstat("pgmigrate_success") - before < (long)others / 8; turn++)
		pass(100);
	printf("the others: %s\n", vmstat("pgmigrate_success") - before < (long)others / 8 ? "hidden" : "move");
	for (size_t page = 0; page < pages; page += 512)
		for (size_t at = page; at < page + few; at++)
			wrong += *(size_t *)(locked + at * 4096) != at + 1;
	printf("wrong pages: %zu\n", wrong);
	check(other, others, 1);
}

/* At 0 no frame moves, whichever way the host gets memory back. */
static void never(void)
{
	size_t pages = share(94);
	char *memory = map(pages);
	long before;

	write_knob(KNOB, 0);
	before = work();
	fill(memory, pages);
	thin(memory, pages, 1);
	pass(100);
	printf("at 0: %s\n", work() == before ? "nothing" : "something");
	write_knob(KNOB, 20);
	await(0, 6);
	printf("at 20: %s\n", pieces(0) <= 6 ? "whole" : "in pieces");
	check(memory, pages, 1);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{"begins", begins}, {"ends", ends},	    {"zones", zones},
		{"guard", guard},   {"deferral", deferral}, {"never", never},
		{"paused", paused}, {"allowed", allowed}, {"hidden", hidden},
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++)
		if (argc > 1 && !strcmp(argv[1], parts[part].name))
			return parts[part].run(), 0;
	return 2;
}
