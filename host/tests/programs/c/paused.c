/* Fills memory, frees it when told to, and checks every byte of what it kept and of what it gets again: for guests that are
 * stopped meanwhile.
 *
 * paused MIB ROUNDS
 *
 * What it frees is in regions of 2^0 to 2^9 pages: one block of eight in the smaller ones, the rest in huge pages. An eighth of
 * MIB beside it is kept over all rounds. In each round it says `filled`, frees when it reads a line, says `freed`, and when it
 * has read another line `went on N`, with the microseconds by the guest's clock since it had freed: an upper bound of the time
 * after which the guest was stopped, if that line was sent while it stood still. At the end it says how many pages were right.
 */
#include "say.h"
#include <stdint.h>
#include <time.h>

#define HUGE_PAGE (2ul << 20)
#define WORDS (PAGE / 8)
#define REGIONS 9

static uint64_t right;

static uint64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ul + t.tv_nsec / 1000;
}

static char *map(size_t bytes, int advice)
{
	char *p = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		say("refused: %s", strerrorname_np(errno));
		exit(1);
	}
	char *start = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	if (start > p)
		munmap(p, start - p);
	munmap(start + bytes, p + HUGE_PAGE - start);
	madvise(start, bytes, advice);
	return start;
}

/* The word at this place of a page that is filled in this round. */
static uint64_t word(uint64_t seed, size_t page, size_t at)
{
	return (seed << 48 ^ page << 12 ^ at) * 0x9e3779b97f4a7c15ul | 1;
}

static void fill(char *p, size_t bytes, uint64_t seed)
{
	uint64_t *words = (uint64_t *)p;
	for (size_t i = 0; i < bytes / 8; i++)
		words[i] = word(seed, i / WORDS, i % WORDS);
}

/* Checks each byte; a seed of 0 is for pages that were never written to. */
static void check(char *p, size_t bytes, uint64_t seed, const char *what)
{
	uint64_t *words = (uint64_t *)p;
	for (size_t i = 0; i < bytes / 8; i++) {
		uint64_t wanted = seed ? word(seed, i / WORDS, i % WORDS) : 0;
		if (words[i] != wanted) {
			say("wrong: %s, page %zu, word %zu: %lx, not %lx", what, i / WORDS, i % WORDS, words[i], wanted);
			exit(1);
		}
	}
	right += bytes / PAGE;
}

/* A block of eight is in base pages. Its pages are written to before they are looked at, or all would be one page of zeros. */
static char *take(size_t n)
{
	char *p = map(HUGE_PAGE, n % 8 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	for (size_t i = 0; i < HUGE_PAGE; i += PAGE)
		*(volatile uint64_t *)(p + i) = 0;
	check(p, HUGE_PAGE, 0, "fresh");
	return p;
}

int main(int argc, char **argv)
{
	size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 400;
	uint64_t rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	size_t blocks = mib / 2, kept_bytes = (mib / 8) << 20;
	char line[100], **block = calloc(blocks, sizeof *block);
	char *kept = map(kept_bytes, MADV_NOHUGEPAGE);
	fill(kept, kept_bytes, 77);
	for (uint64_t round = 1; round <= rounds; round++) {
		for (size_t n = 0; n < blocks; n++) {
			block[n] = take(n);
			fill(block[n], HUGE_PAGE, round << 10 | n);
		}
		for (size_t n = 0; n < blocks; n++)
			check(block[n], HUGE_PAGE, round << 10 | n, "filled");
		say("filled");
		if (!fgets(line, sizeof line, stdin))
			return 1;
		for (size_t n = 0; n < blocks; n++) {
			if (n % 8) {
				munmap(block[n], HUGE_PAGE);
				continue;
			}
			/* Regions of 1, 1, 2, 4 … 256 pages. */
			munmap(block[n], PAGE);
			for (int order = 0; order < REGIONS; order++)
				munmap(block[n] + (PAGE << order), PAGE << order);
		}
		uint64_t freed = now_us();
		say("freed");
		if (!fgets(line, sizeof line, stdin))
			return 1;
		say("went on %lu", now_us() - freed);
		check(kept, kept_bytes, 77, "kept");
	}
	say("right %lu", right);
	return 0;
}
