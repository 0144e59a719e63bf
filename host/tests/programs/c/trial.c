/* Huge pages that were not requested: a few seconds after it was touched, memory takes what is used
   of it, and shows what was stored to it. Needs a kernel whose policy is `always`. */
#include "say.h"

#define HUGE (2l << 20)
#define PAGES 512

/* An aligned place for `count` huge pages, apart from its neighbours. */
static char *place(long count)
{
	char *all = MUST(mmap(0, (count + 2) * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	char *start = (char *)(((uintptr_t)all + HUGE) & -HUGE);
	MUST(mprotect(start, count * HUGE, PROT_READ | PROT_WRITE));
	return start;
}

/* A figure of the mapping that starts there, in KiB. */
static long smaps(const char *start, const char *name)
{
	char line[256];
	unsigned long from, to;
	int there = 0;
	long value = -1;
	FILE *file = fopen("/proc/self/smaps", "r");
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr(line, '-') < strchr(line, ' '))
			there = from <= (uintptr_t)start && (uintptr_t)start < to;
		else if (there && !strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
			value = atol(line + strlen(name) + 1);
	}
	fclose(file);
	return value;
}

static void store(char *start, int first, int pages)
{
	for (int page = first; page < first + pages; page++)
		*(long *)(start + page * PAGE + 8) = page + 1;
}

/* Whether `pages` pages show what was stored, and the rest zero; of `all` of them. */
static int shows(const char *start, int pages, int all)
{
	for (int page = 0; page < all; page++) {
		const long *words = (const long *)(start + page * PAGE);
		if (words[1] != (page < pages ? page + 1 : 0) || words[0] || words[511])
			return 0;
	}
	return 1;
}

int main(void)
{
	char *one = place(1), *all = place(1), *most = place(1), *many = place(1), *grows = place(1);
	char *locked = place(1), *filled = place(1), *advised = place(1);
	char *cut = place(1), *dropped = place(1), *forked = place(1), *guarded = place(1), *read_into = place(1);

	say("at once");
	store(cut, 0, 8);
	MUST(munmap(cut + HUGE / 2, HUGE / 2));
	HOLDS(smaps(cut, "Rss") == 32);
	HOLDS(shows(cut, 8, PAGES / 2));
	store(dropped, 0, 8);
	MUST(madvise(dropped + 4 * PAGE, PAGE, MADV_DONTNEED));
	HOLDS(smaps(dropped, "Rss") == 28);
	HOLDS(*(long *)(dropped + 4 * PAGE + 8) == 0 && *(long *)(dropped + 5 * PAGE + 8) == 6);
	store(forked, 0, 8);
	IN_CHILD("the child", {
		HOLDS(shows(forked, 8, PAGES));
		store(forked, 8, 8);
		HOLDS(shows(forked, 16, PAGES));
	});
	HOLDS(shows(forked, 8, PAGES));
	store(guarded, 0, 8);
	MUST(mprotect(guarded + 100 * PAGE, PAGE, PROT_NONE));
	HOLDS(smaps(guarded, "Rss") == 32);
	MUST(mprotect(guarded + 100 * PAGE, PAGE, PROT_READ));
	HOLDS(shows(guarded, 8, PAGES));
	store(read_into, 0, 1);
	int fds[2];
	MUST(pipe(fds));
	MUST(write(fds[1], "from a call", 11));
	MUST(read(fds[0], read_into + 7 * PAGE, 11));


	store(one, 0, 1);
	store(all, 0, PAGES);
	store(most, 0, 470);
	store(many, 0, 400);
	store(grows, 0, 40);
	double last = now();
	store(locked, 0, 1);
	MUST(mlock(locked, HUGE));
	store(filled, 0, 1);
	MUST(madvise(filled, HUGE, MADV_POPULATE_WRITE));
	store(advised, 0, 1);
	MUST(madvise(advised, HUGE, MADV_HUGEPAGE));

	/* Trials are checked each second. One that has not grown meanwhile ends. If the machine was
	   too slow, the region is joined later. */
	int late = 0;
	for (int page = 40; page < PAGES; page += 40) {
		sleep_ms(300);
		store(grows, page, page + 40 > PAGES ? PAGES - page : 40);
		late |= now() - last > 0.5;
		last = now();
	}
	sleep_ms(3000);
	/* A busy machine takes longer to end a trial. */
	for (int tries = 0; tries < 15000; tries++) {
		if (smaps(one, "Rss") == 4 && smaps(many, "Rss") == 1600 && smaps(read_into, "Rss") == 8 &&
		    (!late || smaps(grows, "AnonHugePages") == 2048))
			break;
		sleep_ms(20);
	}
	say("after some seconds");
	HOLDS(smaps(one, "Rss") == 4);
	HOLDS(shows(one, 1, PAGES));
	HOLDS(smaps(one, "Rss") == 4);
	HOLDS(smaps(all, "AnonHugePages") == 2048);
	HOLDS(shows(all, PAGES, PAGES));
	HOLDS(smaps(most, "AnonHugePages") == 2048);
	HOLDS(shows(most, 470, PAGES));
	HOLDS(smaps(many, "Rss") == 1600);
	HOLDS(shows(many, 400, PAGES));
	HOLDS(smaps(grows, "AnonHugePages") == 2048);
	HOLDS(shows(grows, PAGES, PAGES));
	HOLDS(smaps(locked, "Rss") == 2048);
	HOLDS(smaps(filled, "AnonHugePages") == 2048);
	HOLDS(smaps(advised, "AnonHugePages") == 2048);
	HOLDS(shows(advised, 1, PAGES));
	HOLDS(smaps(read_into, "Rss") == 8);
	HOLDS(!strcmp(read_into + 7 * PAGE, "from a call"));
	store(one, 0, PAGES);
	HOLDS(shows(one, PAGES, PAGES));
}
