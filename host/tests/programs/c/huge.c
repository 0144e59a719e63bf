/* Huge pages of anonymous memory: that every page shows what was stored to it, whatever is unmapped,
   protected, moved, dropped or forked around it. With an argument, what the kernel counts, too: that
   differs from kernel to kernel. Arguments: [figures | plain | full | SEED [STEPS]]; `plain`: as
   `figures`, but huge pages are not asked for; `full`: nearly all memory that there is. */
#include "khugepaged.h"
#include <pthread.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#define HUGE (2l << 20)
#define PAGES_IN_HUGE 512
/* Regions of the model. */
#define REGIONS 8
#define SPOILT 4
#define PAGES (REGIONS * PAGES_IN_HUGE)

static unsigned long state, step;
static int plain;
static sigjmp_buf refused;

static unsigned random_below(unsigned bound)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 20) % bound;
}

/* An aligned place for huge pages. */
static char *place(long bytes)
{
	char *all = MUST(mmap(0, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	char *start = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE);
	if (start != all)
		MUST(munmap(all, start - all));
	MUST(munmap(start + bytes, all + HUGE - start));
	return start;
}

static char *map_at(char *at, long bytes)
{
	MUST(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	if (!plain)
		madvise(at, bytes, MADV_HUGEPAGE);
	return at;
}

static char *map_huge(long bytes)
{
	return map_at(place(bytes), bytes);
}

static void fill(char *start, long pages, unsigned seed)
{
	for (long page = 0; page < pages; page++)
		*(uint64_t *)(start + page * PAGE + page % 500 * 8) = seed + page;
}

static long wrong(const char *start, long pages, unsigned seed)
{
	long count = 0;
	for (long page = 0; page < pages; page++)
		count += *(volatile uint64_t *)(start + page * PAGE + page % 500 * 8) != seed + page;
	return count;
}

static long not_zero(const char *start, long pages)
{
	long count = 0;
	for (long word = 0; word < pages * PAGE / 8; word++)
		count += ((volatile uint64_t *)start)[word] != 0;
	return count;
}

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(refused, 1);
}

static int can_load(const char *at)
{
	if (sigsetjmp(refused, 1))
		return 0;
	*(volatile const char *)at;
	return 1;
}

static int can_store(char *at)
{
	if (sigsetjmp(refused, 1))
		return 0;
	*(volatile char *)at = *(volatile char *)at;
	return 1;
}

/* One number that the kernel counts. */
static long figure(const char *path, const char *name)
{
	char line[256];
	long value, sum = 0;
	FILE *file = fopen(path, "r");
	if (!file)
		return -1;
	size_t length = strlen(name);
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, name, length) && sscanf(line + length, "%*[: ]%ld", &value) == 1)
			sum += value;
	fclose(file);
	return sum;
}

static int figures;
static long allocated, fallen_back, parted, split;

static void count(const char *when)
{
	if (!figures)
		return;
	say("%s: %ld kB in huge pages, %ld kB in the machine, %ld faults, %ld without, %ld blocks parted, %ld entries split",
	    when, figure("/proc/self/smaps", "AnonHugePages"), figure("/proc/meminfo", "AnonHugePages"),
	    figure("/proc/vmstat", "thp_fault_alloc") - allocated, figure("/proc/vmstat", "thp_fault_fallback") - fallen_back,
	    figure("/proc/vmstat", "thp_split_page") - parted, figure("/proc/vmstat", "thp_split_pmd") - split);
}

static void start_counting(void)
{
	allocated = figure("/proc/vmstat", "thp_fault_alloc");
	fallen_back = figure("/proc/vmstat", "thp_fault_fallback");
	parted = figure("/proc/vmstat", "thp_split_page");
	split = figure("/proc/vmstat", "thp_split_pmd");
}

static void whole(void)
{
	char *a = map_huge(4 * HUGE);
	a[HUGE + 5 * PAGE] = 1;
	HOLDS(a[HUGE + 5 * PAGE] == 1);
	a[HUGE + 5 * PAGE] = 0;
	HOLDS(not_zero(a, 4 * PAGES_IN_HUGE) == 0);
	fill(a, 4 * PAGES_IN_HUGE, 1000);
	HOLDS(wrong(a, 4 * PAGES_IN_HUGE, 1000) == 0);
	count("written");
	MUST(munmap(a, 4 * HUGE));
	count("unmapped");
}

static void partly_unmapped(void)
{
	char *a = map_huge(3 * HUGE);
	fill(a, 3 * PAGES_IN_HUGE, 1);
	MUST(munmap(a + HUGE - 3 * PAGE, 10 * PAGE));
	HOLDS(wrong(a, PAGES_IN_HUGE - 3, 1) == 0);
	HOLDS(!can_load(a + HUGE - 3 * PAGE) && !can_load(a + HUGE + 6 * PAGE) && can_load(a + HUGE + 7 * PAGE));
	for (long page = PAGES_IN_HUGE + 7; page < 3 * PAGES_IN_HUGE; page++)
		if (*(uint64_t *)(a + page * PAGE + page % 500 * 8) != 1 + page)
			say("page %ld shows something else", page);
	count("two of three cut");
	map_at(a + HUGE - 3 * PAGE, 10 * PAGE);
	HOLDS(not_zero(a + HUGE - 3 * PAGE, 10) == 0);
	MUST(munmap(a, 3 * HUGE));
	count("unmapped");
}

static void dropped(void)
{
	char *a = map_huge(2 * HUGE);
	fill(a, 2 * PAGES_IN_HUGE, 7);
	MUST(madvise(a + 100 * PAGE, 50 * PAGE, MADV_DONTNEED));
	HOLDS(not_zero(a + 100 * PAGE, 50) == 0);
	HOLDS(wrong(a, 100, 7) == 0);
	HOLDS(wrong(a + 500 * PAGE, 12, 507) == 0);
	count("a part dropped");
	MUST(madvise(a + HUGE, HUGE, MADV_DONTNEED));
	count("one dropped");
	HOLDS(not_zero(a + HUGE, PAGES_IN_HUGE) == 0);
	fill(a + HUGE, PAGES_IN_HUGE, 9);
	HOLDS(wrong(a + HUGE, PAGES_IN_HUGE, 9) == 0);
	MUST(munmap(a, 2 * HUGE));
	count("unmapped");
}

static void protected(void)
{
	char *a = map_huge(2 * HUGE);
	fill(a, 2 * PAGES_IN_HUGE, 11);
	MUST(mprotect(a, HUGE, PROT_READ));
	HOLDS(can_load(a + 9) && !can_store(a + 9) && can_store(a + HUGE));
	count("one read-only");
	MUST(mprotect(a, HUGE, PROT_NONE));
	HOLDS(!can_load(a) && !can_load(a + HUGE - 1));
	MUST(mprotect(a, HUGE, PROT_READ | PROT_WRITE));
	HOLDS(can_store(a) && can_store(a + HUGE - 1));
	count("as before");
	MUST(mprotect(a + HUGE + 17 * PAGE, PAGE, PROT_READ));
	HOLDS(can_store(a + HUGE + 16 * PAGE) && !can_store(a + HUGE + 17 * PAGE) && can_store(a + HUGE + 18 * PAGE));
	HOLDS(can_load(a + HUGE + 17 * PAGE));
	HOLDS(wrong(a, 2 * PAGES_IN_HUGE, 11) == 0);
	count("a page read-only");
	MUST(munmap(a, 2 * HUGE));
}

static void moved(void)
{
	char *a = map_huge(2 * HUGE), *b = place(4 * HUGE);
	fill(a, 2 * PAGES_IN_HUGE, 13);
	HOLDS(mremap(a, 2 * HUGE, 2 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, b) == b);
	HOLDS(wrong(b, 2 * PAGES_IN_HUGE, 13) == 0 && !can_load(a));
	count("moved whole");
	/* To a place that is aligned otherwise. */
	char *c = b + 2 * HUGE + 3 * PAGE;
	HOLDS(mremap(b, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, c) == c);
	HOLDS(wrong(c, PAGES_IN_HUGE, 13) == 0 && !can_load(b) && can_load(b + HUGE));
	count("moved askew");
	/* A part of one. */
	HOLDS(mremap(b + HUGE + 10 * PAGE, 20 * PAGE, 20 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, b) == b);
	HOLDS(*(uint64_t *)(b + 22 * 8) == 13 + PAGES_IN_HUGE + 10 && !can_load(b + HUGE + 10 * PAGE));
	count("a part moved");
	MUST(munmap(b, 4 * HUGE));
}

static void forked(void)
{
	char *a = map_huge(3 * HUGE);
	fill(a, 3 * PAGES_IN_HUGE, 17);
	IN_CHILD("a child that reads", {
		count("shared");
		HOLDS(wrong(a, 3 * PAGES_IN_HUGE, 17) == 0);
	});
	IN_CHILD("a child that writes", {
		fill(a + HUGE, 300, 5);
		HOLDS(wrong(a + HUGE, 300, 5) == 0);
		HOLDS(wrong(a, PAGES_IN_HUGE, 17) == 0);
		count("written by the child");
	});
	HOLDS(wrong(a, 3 * PAGES_IN_HUGE, 17) == 0);
	count("after the children");
	int ready[2], go[2];
	MUST(pipe(ready));
	MUST(pipe(go));
	pid_t child = MUST(fork());
	char byte = 0;
	if (child == 0) {
		/* Its parent stores, drops and unmaps meanwhile. */
		MUST(write(ready[1], &byte, 1));
		MUST(read(go[0], &byte, 1));
		HOLDS(wrong(a, 3 * PAGES_IN_HUGE, 17) == 0);
		a[0] = 3;
		MUST(munmap(a + 2 * HUGE + PAGE, PAGE));
		_exit(0);
	}
	MUST(read(ready[0], &byte, 1));
	fill(a, 100, 23);
	MUST(madvise(a + HUGE, HUGE, MADV_DONTNEED));
	MUST(munmap(a + 2 * HUGE, HUGE / 2));
	MUST(write(go[1], &byte, 1));
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("a child whose parent writes", status);
	HOLDS(wrong(a, 100, 23) == 0);
	fill(a, PAGES_IN_HUGE, 29);
	HOLDS(wrong(a, PAGES_IN_HUGE, 29) == 0 && not_zero(a + HUGE, PAGES_IN_HUGE) == 0);
	MUST(munmap(a, 3 * HUGE));
	count("unmapped");
}

static void read_parent(pid_t parent, char *a)
{
	static char copy[3 * PAGE];
	struct iovec to, from;
	to.iov_base = copy;
	from.iov_base = a + 100 * PAGE;
	to.iov_len = from.iov_len = sizeof copy;
	ssize_t got = process_vm_readv(parent, &to, 1, &from, 1, 0);
	/* A sandbox may forbid it. */
	HOLDS(got == -1 || got == sizeof copy && *(uint64_t *)(copy + PAGE + 101 * 8) == 31 + 101);
}

/* By the kernel, and from another process. */
static void by_others(void)
{
	char *a = map_huge(HUGE);
	fill(a, PAGES_IN_HUGE, 31);
	int file[2];
	MUST(pipe(file));
	HOLDS(write(file[1], a + 30 * PAGE, 2 * PAGE) == 2 * PAGE);
	HOLDS(read(file[0], a + 40 * PAGE, 2 * PAGE) == 2 * PAGE);
	HOLDS(*(uint64_t *)(a + 41 * PAGE + 31 * 8) == 31 + 31);
	fill(a, PAGES_IN_HUGE, 31);
	pid_t parent = getpid();
	IN_CHILD("a child that reads its parent", read_parent(parent, a));
	HOLDS(wrong(a, PAGES_IN_HUGE, 31) == 0);
	count("read by others");
	MUST(munmap(a, HUGE));
	count("unmapped");
}

static void declined(void)
{
	char *a = map_huge(2 * HUGE);
	madvise(a, HUGE, MADV_NOHUGEPAGE);
	fill(a, 2 * PAGES_IN_HUGE, 37);
	HOLDS(wrong(a, 2 * PAGES_IN_HUGE, 37) == 0);
	count("one declined");
	MUST(munmap(a, 2 * HUGE));
	/* One that an area does not hold wholly. */
	a = map_huge(2 * HUGE);
	MUST(munmap(a, PAGE));
	fill(a + PAGE, 2 * PAGES_IN_HUGE - 1, 41);
	HOLDS(wrong(a + PAGE, 2 * PAGES_IN_HUGE - 1, 41) == 0);
	count("one too small");
	MUST(munmap(a, 2 * HUGE));
	/* By the process. */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	HOLDS(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
	a = map_huge(HUGE);
	fill(a, PAGES_IN_HUGE, 47);
	HOLDS(wrong(a, PAGES_IN_HUGE, 47) == 0);
	count("none at all");
	MUST(munmap(a, HUGE));
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	HOLDS(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
	/* One that was read before it is written: a page at a time. */
	a = map_huge(HUGE);
	HOLDS(not_zero(a, PAGES_IN_HUGE) == 0);
	fill(a, PAGES_IN_HUGE, 43);
	HOLDS(wrong(a, PAGES_IN_HUGE, 43) == 0);
	MUST(munmap(a, HUGE));
}

/* Threads that fault, drop and check in one area, each in its own pages of every region. */
#define THREADS 4
static char *common;

static void *thread(void *argument)
{
	long me = (long)argument, errors = 0;
	uint64_t random = me * 77 + 1;
	for (int round = 0; round < 15; round++) {
		char *slice = common + me * (HUGE / THREADS);
		for (int region = 0; region < 4; region++, slice += HUGE) {
			fill(slice, PAGES_IN_HUGE / THREADS, me * 1000 + round);
			random = random * 6364136223846793005u + 1;
			long first = random >> 33 & 63;
			errors += wrong(slice, PAGES_IN_HUGE / THREADS, me * 1000 + round);
			if (madvise(slice + first * PAGE, 8 * PAGE, MADV_DONTNEED))
				errors++;
			errors += not_zero(slice + first * PAGE, 8);
		}
		/* A region of its own, again and again. */
		char *own = common + (4 + me) * HUGE;
		fill(own, PAGES_IN_HUGE, round);
		errors += wrong(own, PAGES_IN_HUGE, round);
		errors += madvise(own, HUGE, MADV_DONTNEED) != 0;
		errors += own[PAGE + 8] != 0;
		errors += munmap(own, HUGE) != 0;
		map_at(own, HUGE);
	}
	return (void *)errors;
}

static void with_threads(void)
{
	pthread_t threads[THREADS];
	common = map_huge((4 + THREADS) * HUGE);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, thread, (void *)i);
	for (int i = 0; i < 5; i++)
		IN_CHILD("a child of threads", can_load(common));
	long errors = 0;
	for (int i = 0; i < THREADS; i++) {
		void *result;
		pthread_join(threads[i], &result);
		errors += (long)result;
	}
	HOLDS(errors == 0);
	MUST(munmap(common, (4 + THREADS) * HUGE));
}

/* Random changes against a model: the value of each page, 0 where it must be zero, -1 where nothing
   is mapped; and whether stores are allowed. */
static int model[PAGES];
static char writable[PAGES];
static char *base;

static void check_all(const char *after)
{
	for (int page = 0; page < PAGES; page++) {
		char *at = base + (long)page * PAGE;
		if (can_load(at) != (model[page] >= 0) ||
		    model[page] >= 0 && *(volatile int *)(at + page % 1000 * 4) != model[page]) {
			say("step %lu, after %s: page %d should show %d", step, after, page, model[page]);
			_exit(1);
		}
	}
}

static void change(void)
{
	int first = random_below(PAGES), pages = 1 + random_below(random_below(4) ? 40 : 1200);
	/* Often whole regions. */
	if (random_below(3) == 0) {
		first &= -PAGES_IN_HUGE;
		pages = (pages + PAGES_IN_HUGE - 1) & -PAGES_IN_HUGE;
	}
	if (pages > PAGES - first)
		pages = PAGES - first;
	char *at = base + (long)first * PAGE;
	long bytes = (long)pages * PAGE;
	switch (random_below(8)) {
	case 0:
		MUST(munmap(at, bytes));
		for (int i = first; i < first + pages; i++)
			model[i] = -1;
		break;
	case 1:
	case 2:
		map_at(at, bytes);
		for (int i = first; i < first + pages; i++)
			model[i] = 0, writable[i] = 1;
		break;
	case 3:
		/* Parts may not be mapped: what is, is dropped. */
		madvise(at, bytes, MADV_DONTNEED);
		for (int i = first; i < first + pages; i++)
			if (model[i] > 0)
				model[i] = 0;
		break;
	case 4: {
		int store = random_below(2);
		for (int i = first; i < first + pages; i++)
			if (model[i] >= 0) {
				int end = i;
				while (end < first + pages && model[end] >= 0)
					writable[end++] = store;
				MUST(mprotect(base + (long)i * PAGE, (long)(end - i) * PAGE, store ? PROT_READ | PROT_WRITE : PROT_READ));
				i = end;
			}
		break;
	}
	case 5: {
		/* A move within, when nothing overlaps and one mapping is there. */
		int to = random_below(PAGES - pages + 1);
		if (random_below(2))
			to = (to & -PAGES_IN_HUGE) + first % PAGES_IN_HUGE;
		if (to + pages > PAGES || to < first + pages && first < to + pages)
			break;
		for (int i = first; i < first + pages; i++)
			if (model[i] < 0 || writable[i] != writable[first])
				return;
		char *target = base + (long)to * PAGE;
		/* Neighbours may be several areas all the same. */
		if (mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, target) == MAP_FAILED) {
			/* The target may be gone by now. */
			MUST(munmap(target, bytes));
			for (int i = to; i < to + pages; i++)
				model[i] = -1;
			break;
		}
		/* The byte that is looked at moves with the page: put it where it is looked for. */
		MUST(mprotect(target, bytes, PROT_READ | PROT_WRITE));
		for (int i = 0; i < pages; i++) {
			int value = *(int *)(target + (long)i * PAGE + (first + i) % 1000 * 4);
			*(int *)(target + (long)i * PAGE + (first + i) % 1000 * 4) = 0;
			*(int *)(target + (long)i * PAGE + (to + i) % 1000 * 4) = value;
			if (value != model[first + i]) {
				say("step %lu: a page moved from %d to %d shows %d, not %d", step, first + i, to + i, value, model[first + i]);
				_exit(1);
			}
			model[to + i] = value, writable[to + i] = 1;
		}
		for (int i = first; i < first + pages; i++)
			model[i] = -1;
		break;
	}
	case 6: {
		pid_t child = MUST(fork());
		if (child == 0) {
			check_all("a fork, in the child");
			for (int i = 0; i < 200; i++) {
				int page = random_below(PAGES);
				if (model[page] >= 0 && writable[page])
					*(int *)(base + (long)page * PAGE + page % 1000 * 4) = model[page] = 1 + random_below(1000);
			}
			check_all("stores in the child");
			_exit(0);
		}
		/* Stores meanwhile. */
		for (int i = 0; i < 100; i++) {
			int page = random_below(PAGES);
			if (model[page] >= 0 && writable[page])
				*(int *)(base + (long)page * PAGE + page % 1000 * 4) = model[page] = 1 + random_below(1000);
		}
		int status;
		MUST(waitpid(child, &status, 0));
		if (status) {
			say_status("a child", status);
			_exit(1);
		}
		break;
	}
	default:
		for (int i = first; i < first + pages; i++)
			if (model[i] >= 0 && writable[i])
				*(int *)(base + (long)i * PAGE + i % 1000 * 4) = model[i] = 1 + random_below(1000);
	}
}

static void at_random(unsigned long seed, unsigned long steps)
{
	state = seed * 2654435769u + 1;
	base = place((long)PAGES * PAGE);
	map_at(base, (long)PAGES * PAGE);
	for (int i = 0; i < PAGES; i++)
		model[i] = 0, writable[i] = 1;
	for (step = 0; step < steps; step++) {
		change();
		if (step % 8 == 0)
			check_all("changes");
	}
	check_all("all changes");
	say("seed %lu: %lu steps are as the model says", seed, steps);
	MUST(munmap(base, (long)PAGES * PAGE));
}

/* Leaves one page of each of some huge pages' frames in use, so that none of them is whole. */
static char *some_parts(void)
{
	char *a = place(SPOILT * HUGE);
	map_at(a, SPOILT * HUGE);
	MUST(madvise(a, SPOILT * HUGE, MADV_NOHUGEPAGE));
	fill(a, SPOILT * HUGE / PAGE, 0);
	for (int i = 0; i < SPOILT; i++)
		MUST(madvise(a + i * HUGE + PAGE, HUGE - PAGE, MADV_DONTNEED));
	return a;
}

static void nearly_all(void)
{
	/* Nothing moves to make room for a huge page. */
	int fd = open("/sys/kernel/mm/transparent_hugepage/defrag", O_WRONLY);
	HOLDS(write(fd, "never", 5) == 5);
	close(fd);
	char *spoilt = some_parts();
	long pages = (figure("/proc/meminfo", "MemAvailable") - 2048) / 4;
	long bytes = (pages * PAGE + HUGE - 1) & -HUGE;
	char *a = map_huge(bytes);
	for (int round = 0; round < 3; round++) {
		fill(a, pages, round);
		HOLDS(wrong(a, pages, round) == 0);
		MUST(madvise(a, bytes, MADV_DONTNEED));
	}
	long parts = figure("/proc/vmstat", "thp_fault_fallback") - fallen_back;
	HOLDS(parts > 0);
	HOLDS(figure("/proc/vmstat", "thp_fault_alloc") - allocated > parts);
	MUST(munmap(a, bytes));
	MUST(munmap(spoilt, SPOILT * HUGE));
}

static int may_have_huge_pages(void)
{
	char words[64] = "";
	int fd = MUST(open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY));
	MUST(read(fd, words, sizeof words - 1));
	close(fd);
	return !strstr(words, "[never]");
}

int main(int argc, char **argv)
{
	signal(SIGSEGV, on_fault);
	if (argc > 1 && !strcmp(argv[1], "full")) {
		start_counting();
		nearly_all();
		return 0;
	}
	plain = argc > 1 && !strcmp(argv[1], "plain");
	if (argc > 1 && !plain && strcmp(argv[1], "figures")) {
		at_random(strtoul(argv[1], 0, 10), argc > 2 ? strtoul(argv[2], 0, 10) : 1000);
		return 0;
	}
	figures = argc > 1;
	/* Without any, nothing is scanned. */
	if (figures && may_have_huge_pages())
		put_khugepaged_to_sleep();
	start_counting();
	whole();
	partly_unmapped();
	dropped();
	protected();
	moved();
	forked();
	by_others();
	declined();
	if (!figures) {
		with_threads();
		for (unsigned long seed = 1; seed <= 2; seed++)
			at_random(seed, 200);
	}
	count("in the end");
	return 0;
}
