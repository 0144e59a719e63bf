/* Free page reporting at each order: pieces of that size go to the host where they are, and nothing is moved for them.
 * Smaller ones go once what lies between them has been moved. */
#include "figures.h"

#define BLOCK (512L * PAGE)
#define SIZE (64L << 20)
/* What else may happen to move meanwhile. */
#define FEW 64
/* The rule collects what lies in half-used blocks after 2 s to 2.5 s. */
#define PATIENCE_MS 4000
/* No machine is so slow. */
#define LONG_MS 200000

static const char *order_file = "/sys/module/page_reporting/parameters/page_reporting_order";

static long moved(void)
{
	return number("/proc/vmstat", "pgmigrate_success ");
}

static long reported(void)
{
	return number("/proc/vmstat", "page_reporting_pages ");
}

/* Waits until a number of further pages is reported. */
static int waits_for_reports(long before, long pages)
{
	for (long waited = 0; waited < LONG_MS; waited += 50) {
		if (reported() - before >= pages)
			return 1;
		sleep_ms(50);
	}
	return 0;
}

static int waits_for_moves(long before)
{
	for (long waited = 0; waited < LONG_MS; waited += 50) {
		if (moved() - before > FEW)
			return 1;
		sleep_ms(50);
	}
	return 0;
}

/* Aligned memory in huge pages: pieces of it are aligned in memory, too. */
static char *fill(void)
{
	char *all = MUST(mmap(NULL, SIZE + BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *memory = (char *)(((uintptr_t)all + BLOCK - 1) & -BLOCK);

	MUST(madvise(memory, SIZE, MADV_HUGEPAGE));
	for (long at = 0; at < SIZE; at += PAGE)
		memset(memory + at, (char)(at / PAGE % 251 + 1), PAGE);
	return memory;
}

/* Frees every other piece. */
static void part(char *memory, long piece)
{
	for (long at = 0; at < SIZE; at += 2 * piece)
		MUST(madvise(memory + at, piece, MADV_DONTNEED));
}

static long wrong(char *memory, long piece)
{
	long count = 0;

	for (long at = 0; at < SIZE; at += PAGE)
		if (memory[at + at / PAGE % PAGE] != (at / piece % 2 ? (char)(at / PAGE % 251 + 1) : 0))
			count++;
	return count;
}

static void at_order(int order, long piece, int gathers)
{
	char text[16];
	char *memory = fill();
	long pages = SIZE / PAGE / 2;

	snprintf(text, sizeof text, "%d", order);
	MUST(set_knob(order_file, text));
	sleep_ms(100);
	long moved_before = moved(), before = reported();
	part(memory, piece);
	/* At order 10 the halves of some pairs belong to others. */
	int told = gathers || waits_for_reports(before, order == 10 ? pages / 2 : pages);
	int moves = gathers ? waits_for_moves(moved_before) : (sleep_ms(PATIENCE_MS), moved() - moved_before > FEW);
	long bad = wrong(memory, piece);
	say("order %d, pieces of %ld: %s, %s, wrong pages: %ld", order, piece / PAGE, told ? "reported" : "NOT reported",
	    moves ? "moved" : "not moved", bad);
	munmap(memory, SIZE);
}

/* The counters count the same requests: each has a range at least, and each range a page. */
static void counted(void)
{
	long requests = number("/proc/vmstat", "page_reporting_requests ");
	long ranges = number("/proc/vmstat", "page_reporting_ranges ");
	long pages = reported();

	MUST(set_knob(order_file, "9"));
	for (int round = 0; round < 3; round++) {
		long before = reported();
		char *memory = fill();
		munmap(memory + BLOCK, SIZE - BLOCK);
		waits_for_reports(before, SIZE / PAGE - 512);
		/* One block alone, and what describes it. */
		before = reported();
		munmap(memory, BLOCK);
		waits_for_reports(before, 512);
	}
	requests = number("/proc/vmstat", "page_reporting_requests ") - requests;
	ranges = number("/proc/vmstat", "page_reporting_ranges ") - ranges;
	pages = reported() - pages;
	HOLDS(requests > 0 && requests <= ranges && ranges <= pages);
	/* Descriptors are 1 of 64 pages. */
	HOLDS(pages > 3 * SIZE / PAGE);
}

int main(void)
{
	for (int order = 0; order <= 9; order++)
		at_order(order, (long)PAGE << order, 0);
	/* Pairs of blocks: all of it, as blocks of one that are freed need not lie together in memory. */
	at_order(10, SIZE, 0);
	at_order(3, 4 * PAGE, 1);
	at_order(9, 256 * PAGE, 1);
	counted();
	return 0;
}
