/* MADV_COLLAPSE: pages that are joined keep their bytes, and what is refused is refused with Linux's errors. */
#include "khugepaged.h"

#define HUGE (2l << 20)
#define PAGES 512
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* What of the program's memory is huge pages, in KiB. */
static long huge_there(void)
{
	return number("/proc/self/smaps_rollup", "AnonHugePages:");
}

/* Pages that were joined so far. */
static long joined(void)
{
	return number("/proc/vmstat", "thp_collapse_alloc ");
}

static char *reserve(long bytes)
{
	char *at = MUST(mmap(0, bytes + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	return (char *)(((uintptr_t)at + 2 * HUGE - 1) & ~(HUGE - 1));
}

static char *map(long bytes, int flags)
{
	char *at = reserve(bytes);
	MUST(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0));
	if (flags & MAP_PRIVATE)
		madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

/* From here on areas may have huge pages, which they get by being joined only: their pages are there. */
static void allow(char *at, long bytes)
{
	MUST(madvise(at, bytes, MADV_HUGEPAGE));
}

static void store(char *at, long bytes, int step, unsigned seed)
{
	for (long page = 0; page < bytes / PAGE; page += step)
		*(volatile unsigned *)(at + page * PAGE + page % 1000 * 4) = seed + page;
}

static int holds(const char *at, long bytes, int step, unsigned seed)
{
	for (long page = 0; page < bytes / PAGE; page++) {
		unsigned word = *(volatile unsigned *)(at + page * PAGE + page % 1000 * 4);
		if (word != (page % step ? 0 : seed + page))
			return 0;
	}
	return 1;
}

int main(void)
{
	put_khugepaged_to_sleep();
	char *at = map(4 * HUGE, MAP_PRIVATE);
	long before = joined();

	say("- whole, and with holes");
	store(at, HUGE, 1, 1);
	store(at + HUGE, HUGE, 7, 2);
	store(at + 2 * HUGE, HUGE, 512, 3);
	TRY(madvise(at, HUGE, MADV_COLLAPSE));
	allow(at, 4 * HUGE);
	TRY(madvise(at, HUGE, MADV_COLLAPSE));
	TRY(huge_there());
	TRY(madvise(at, HUGE, MADV_COLLAPSE));
	TRY(madvise(at, 3 * HUGE, MADV_COLLAPSE));
	TRY(huge_there());
	HOLDS(holds(at, HUGE, 1, 1));
	HOLDS(holds(at + HUGE, HUGE, 7, 2));
	HOLDS(holds(at + 2 * HUGE, HUGE, 512, 3));
	store(at, 3 * HUGE, 3, 9);
	TRY(huge_there());

	say("- where there is nothing to join");
	TRY(madvise(at + 3 * HUGE, HUGE, MADV_COLLAPSE));
	TRY(madvise(at, 4 * HUGE, MADV_COLLAPSE));
	/* Pages that are read, and never were stored to. */
	for (int page = 0; page < PAGES; page++)
		*(volatile char *)(at + 3 * HUGE + page * PAGE);

	say("- parts");
	char *parts = map(3 * HUGE, MAP_PRIVATE);
	store(parts, 3 * HUGE, 1, 4);
	allow(parts, 3 * HUGE);
	TRY(madvise(parts + PAGE, 3 * HUGE - 2 * PAGE, MADV_COLLAPSE));
	TRY(huge_there());
	TRY(madvise(parts, HUGE - PAGE, MADV_COLLAPSE));
	TRY(madvise(parts + 1, HUGE, MADV_COLLAPSE));
	TRY(madvise(parts, 0, MADV_COLLAPSE));
	TRY(madvise(parts, 3 * HUGE + 1, MADV_COLLAPSE));
	TRY(madvise(parts, -PAGE, MADV_COLLAPSE));
	HOLDS(holds(parts, 3 * HUGE, 1, 4));
	/* A part that was given up is joined as zero. */
	TRY(madvise(parts + HUGE + 8 * PAGE, 4 * PAGE, MADV_DONTNEED));
	TRY(madvise(parts + HUGE, HUGE, MADV_COLLAPSE));
	HOLDS(*(long *)(parts + HUGE + 9 * PAGE) == 0);
	HOLDS(*(unsigned *)(parts + HUGE + 7 * PAGE + (PAGES + 7) % 1000 * 4) == 4 + PAGES + 7);

	say("- areas");
	char *small = map(2 * HUGE, MAP_PRIVATE);
	MUST(munmap(small, PAGE));
	MUST(munmap(small + 2 * HUGE - PAGE, PAGE));
	store(small + PAGE, 2 * HUGE - 2 * PAGE, 1, 5);
	allow(small + PAGE, 2 * HUGE - 2 * PAGE);
	TRY(madvise(small + PAGE, PAGE, MADV_COLLAPSE));
	char *hole = map(3 * HUGE, MAP_PRIVATE);
	store(hole, 3 * HUGE, 1, 6);
	allow(hole, 3 * HUGE);
	MUST(munmap(hole + HUGE, HUGE));
	TRY(madvise(hole, 3 * HUGE, MADV_COLLAPSE));
	TRY(huge_there());
	TRY(madvise(hole + HUGE, HUGE, MADV_COLLAPSE));
	char *fixed = map(HUGE, MAP_PRIVATE);
	store(fixed, HUGE, 1, 7);
	allow(fixed, HUGE);
	MUST(mprotect(fixed, HUGE, PROT_READ));
	TRY(madvise(fixed, HUGE, MADV_COLLAPSE));
	MUST(mprotect(fixed, HUGE, PROT_READ | PROT_WRITE));
	TRY(madvise(fixed, HUGE, MADV_COLLAPSE));
	HOLDS(holds(fixed, HUGE, 1, 7));

	say("- after fork");
	char *both = map(2 * HUGE, MAP_PRIVATE);
	store(both, 2 * HUGE, 1, 8);
	allow(both, 2 * HUGE);
	IN_CHILD("a child that joins",
		HOLDS(holds(both, 2 * HUGE, 1, 8));
		/* Linux joins nothing of which no page can be stored to. */
		store(both, 2 * HUGE, 512, 8);
		TRY(madvise(both, 2 * HUGE, MADV_COLLAPSE));
		TRY(huge_there());
		HOLDS(holds(both, 2 * HUGE, 1, 8));
		store(both, 2 * HUGE, 2, 10));
	HOLDS(holds(both, 2 * HUGE, 1, 8));
	TRY(huge_there());
	store(both, 2 * HUGE, 512, 8);
	TRY(madvise(both, 2 * HUGE, MADV_COLLAPSE));
	IN_CHILD("a child of what is joined",
		HOLDS(holds(both, 2 * HUGE, 1, 8));
		store(both, 2 * HUGE, 1, 11);
		HOLDS(holds(both, 2 * HUGE, 1, 11)));
	HOLDS(holds(both, 2 * HUGE, 1, 8));
	HOLDS(joined() - before == 14);
	return 0;
}
