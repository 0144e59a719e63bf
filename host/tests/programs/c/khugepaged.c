/* Pages that become huge pages by and by, without being asked for; with the same settings as on Linux the same ones. */
#include "figures.h"

#define HUGE (2l << 20)
#define PAGES 512
#define FOLDER "/sys/kernel/mm/transparent_hugepage/"

static int set(const char *name, const char *value)
{
	char path[128];
	snprintf(path, sizeof path, FOLDER "%s", name);
	return set_knob(path, value);
}

static long scans(void)
{
	return number(FOLDER "khugepaged/full_scans", "");
}

static long huge_within(int seconds)
{
	long from = scans();
	for (int tries = 0; tries < 100 * seconds && scans() < from + 3; tries++)
		sleep_ms(10);
	return number("/proc/self/smaps_rollup", "AnonHugePages:") / 2048;
}

/* Waits until all was looked at often enough; huge pages there are then. */
static long huge_there(void)
{
	return huge_within(300);
}

/* The same where no area may have huge pages, and Linux counts no scans. */
static long huge_after_a_while(void)
{
	return huge_within(30);
}

static char *map(long bytes)
{
	char *at = MUST(mmap(0, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	at = (char *)(((uintptr_t)at + HUGE - 1) & ~(HUGE - 1));
	madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

/* All pages but the first `missing` of each region. */
static void store(char *at, long bytes, int missing, unsigned seed)
{
	for (long page = 0; page < bytes / PAGE; page++)
		if (page % PAGES >= missing)
			*(volatile unsigned *)(at + page * PAGE + page % 1000 * 4) = seed + page;
}

static int holds(const char *at, long bytes, int missing, unsigned seed)
{
	for (long page = 0; page < bytes / PAGE; page++) {
		unsigned word = *(volatile unsigned *)(at + page * PAGE + page % 1000 * 4);
		if (word != (page % PAGES >= missing ? seed + page : 0))
			return 0;
	}
	return 1;
}

int main(void)
{
	TRY(set("khugepaged/pages_to_scan", "0"));
	TRY(set("khugepaged/max_ptes_none", "512"));
	TRY(set("khugepaged/max_ptes_shared", "512"));
	TRY(set("khugepaged/max_ptes_swap", "512"));
	TRY(set("khugepaged/max_ptes_none", "-1"));
	TRY(set("khugepaged/max_ptes_none", "many"));
	TRY(set("khugepaged/scan_sleep_millisecs", "4294967296"));
	TRY(set("khugepaged/alloc_sleep_millisecs", "4294967296"));
	TRY(set("khugepaged/defrag", "2"));
	TRY(set("khugepaged/pages_to_scan", "100000"));
	TRY(set("khugepaged/scan_sleep_millisecs", "20"));
	TRY(set("khugepaged/alloc_sleep_millisecs", "20"));
	TRY(set("khugepaged/max_ptes_none", "64"));
	TRY(set("khugepaged/max_ptes_shared", "0"));
	long collapsed = number(FOLDER "khugepaged/pages_collapsed", "");

	say("- how many pages must be there");
	char *whole = map(2 * HUGE), *most = map(HUGE), *few = map(HUGE), *one = map(HUGE);
	store(whole, 2 * HUGE, 0, 1);
	store(most, HUGE, 64, 2);
	store(few, HUGE, 65, 3);
	store(one, HUGE, 511, 4);
	TRY(huge_after_a_while());
	MUST(madvise(whole, 2 * HUGE, MADV_HUGEPAGE));
	MUST(madvise(most, HUGE, MADV_HUGEPAGE));
	MUST(madvise(few, HUGE, MADV_HUGEPAGE));
	MUST(madvise(one, HUGE, MADV_HUGEPAGE));
	TRY(huge_there());
	TRY(set("khugepaged/max_ptes_none", "65"));
	TRY(huge_there());
	TRY(set("khugepaged/max_ptes_none", "511"));
	TRY(huge_there());
	HOLDS(holds(whole, 2 * HUGE, 0, 1));
	HOLDS(holds(most, HUGE, 64, 2));
	HOLDS(holds(few, HUGE, 65, 3));
	HOLDS(holds(one, HUGE, 511, 4));
	TRY(set("khugepaged/max_ptes_none", "64"));

	say("- what a part was taken from");
	MUST(madvise(whole + 10 * PAGE, PAGE, MADV_DONTNEED));
	MUST(madvise(most + 70 * PAGE, 100 * PAGE, MADV_DONTNEED));
	TRY(huge_there());
	HOLDS(*(unsigned *)(whole + 10 * PAGE + 40) == 0);

	say("- with a child");
	char *both = map(2 * HUGE);
	store(both, 2 * HUGE, 0, 5);
	MUST(madvise(both, 2 * HUGE, MADV_HUGEPAGE));
	int ends[2];
	MUST(pipe(ends));
	pid_t child = MUST(fork());
	if (child == 0) {
		char byte;
		close(ends[1]);
		read(ends[0], &byte, 1);
		_exit(!holds(both, 2 * HUGE, 0, 5));
	}
	close(ends[0]);
	*(volatile unsigned *)(both + 511 * 4) = 99;
	TRY(huge_there());
	*(volatile unsigned *)(both + 511 * 4) = 0;
	close(ends[1]);
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("the child", status);
	store(both, 2 * HUGE, 0, 5);
	TRY(huge_there());
	HOLDS(holds(both, 2 * HUGE, 0, 5));

	say("- a heap that grows");
	TRY(set("enabled", "always"));
	long before = huge_there();
	for (int step = 0; step < 6 * 1024; step += 128) {
		char *at = sbrk(128 << 10);
		for (int page = 0; page < 32; page++)
			at[page * PAGE] = 1;
	}
	long after = huge_there();
	HOLDS(after - before >= 2 && after - before <= 3);

	say("- never");
	TRY(set("enabled", "never"));
	char *none = map(HUGE);
	store(none, HUGE, 0, 6);
	MUST(madvise(none, HUGE, MADV_HUGEPAGE));
	before = huge_after_a_while();
	HOLDS(before == after);
	TRY(set("enabled", "madvise"));
	HOLDS(huge_there() == before + 1);
	HOLDS(number(FOLDER "khugepaged/pages_collapsed", "") >= collapsed + 10);
	return 0;
}
