/* Memory that is read before anything is stored to it: one huge page of zeros for each 2 MiB, and every byte right whatever
   comes then. With `figures`, how often such a page was made: Linux keeps it. */
#include "figures.h"
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define HUGE (2l << 20)
#define FOLDER "/sys/kernel/mm/transparent_hugepage/"

static sigjmp_buf refused;
static int figures;

static int set(const char *name, const char *value)
{
	char path[128];
	snprintf(path, sizeof path, FOLDER "%s", name);
	return set_knob(path, value);
}

static long made(void)
{
	return number("/proc/vmstat", "thp_zero_page_alloc ");
}

static char *map_as(long bytes, int rights, int advice)
{
	char *all = MUST(mmap(0, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *start = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE);
	MUST(munmap(all, bytes + HUGE));
	MUST(mmap(start, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	MUST(madvise(start, bytes, advice));
	return start;
}

static char *map(long bytes)
{
	return map_as(bytes, PROT_READ | PROT_WRITE, MADV_HUGEPAGE);
}

static long not_zero(const char *start, long bytes)
{
	long count = 0;
	for (const volatile uint64_t *word = (void *)start; (char *)word < start + bytes; word++)
		count += *word != 0;
	return count;
}

static long faults(void)
{
	struct rusage usage;
	MUST(getrusage(RUSAGE_SELF, &usage));
	return usage.ru_minflt;
}

/* Whether all of it is zero, and how many faults it took to know. */
static void look(const char *when, const char *start, long bytes)
{
	long before = faults(), count = not_zero(start, bytes), taken = faults() - before;
	long regions = bytes / HUGE, pages = bytes / PAGE;
	say("%s: %ld words are not zero, %s", when, count,
	    taken == 0 ? "no faults" : taken < regions + 16 ? "a fault for each 2 MiB" : taken < pages ? "some faults" : "a fault for each page");
	say("%ld kB in huge pages", number("/proc/self/smaps", "AnonHugePages:"));
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
	*(volatile char *)at = 1;
	return 1;
}

static void count(const char *when)
{
	static long before = -1;
	if (before == -1)
		before = made();
	if (figures)
		say("%s: %ld made", when, made() - before);
}

static void knob(void)
{
	TRY(set("use_zero_page", "2"));
	TRY(set("use_zero_page", "x"));
	TRY(set("use_zero_page", "-1"));
	TRY(set("use_zero_page", "0\n"));
	say("%ld", number(FOLDER "use_zero_page", ""));
	TRY(set("use_zero_page", "1"));
	say("%ld", number(FOLDER "use_zero_page", ""));
}

static void read_then_stored(void)
{
	count("at first");
	char *a = map(4 * HUGE);
	look("read", a, 4 * HUGE);
	look("read again", a, 4 * HUGE);
	HOLDS(made() > 0);
	HOLDS(number("/proc/self/smaps_rollup", "Rss:") < 4096);
	count("read");
	char *b = map(HUGE);
	look("more read", b, HUGE);
	count("more read");
	MUST(munmap(b, HUGE));
	for (int region = 0; region < 4; region++)
		a[region * HUGE + region * 12345] = 1;
	HOLDS(not_zero(a, 4 * HUGE) == 4);
	for (long at = 0; at < 4 * HUGE; at += 8)
		*(uint64_t *)(a + at) = at + 1;
	long wrong = 0;
	for (long at = 0; at < 4 * HUGE; at += 8)
		wrong += *(uint64_t *)(a + at) != at + 1;
	HOLDS(wrong == 0);
	MUST(munmap(a, 4 * HUGE));
	count("unmapped");
	a = map(HUGE);
	HOLDS(not_zero(a, HUGE) == 0);
	count("once more");
	MUST(munmap(a, HUGE));
}

static void forked(void)
{
	char *a = map(3 * HUGE);
	HOLDS(not_zero(a, 3 * HUGE) == 0);
	IN_CHILD("the child", {
		HOLDS(not_zero(a, 3 * HUGE) == 0);
		a[5] = 1;
		a[HUGE + 5 * PAGE] = 1;
		HOLDS(not_zero(a, 3 * HUGE) == 2);
	});
	HOLDS(not_zero(a, 3 * HUGE) == 0);
	int ends[2], byte = 0;
	MUST(pipe(ends));
	pid_t child = MUST(fork());
	if (child == 0) {
		MUST(read(ends[0], &byte, 1));
		HOLDS(not_zero(a, 3 * HUGE) == 0);
		_exit(0);
	}
	memset(a, 1, 2 * HUGE);
	MUST(write(ends[1], &byte, 1));
	int status;
	MUST(waitpid(child, &status, 0));
	say_status("the second child", status);
	HOLDS(not_zero(a + 2 * HUGE, HUGE) == 0);
	MUST(munmap(a, 3 * HUGE));
}

static void cut(void)
{
	char *a = map(4 * HUGE);
	HOLDS(not_zero(a, 4 * HUGE) == 0);
	MUST(mprotect(a + 3 * PAGE, PAGE, PROT_NONE));
	HOLDS(!can_load(a + 3 * PAGE));
	HOLDS(can_load(a + 4 * PAGE) && can_load(a));
	HOLDS(can_store(a + 2 * PAGE) && !can_store(a + 3 * PAGE));
	HOLDS(not_zero(a + 4 * PAGE, 4 * HUGE - 4 * PAGE) == 0);
	MUST(mprotect(a + HUGE, HUGE, PROT_READ));
	HOLDS(!can_store(a + HUGE));
	HOLDS(not_zero(a + HUGE, HUGE) == 0);
	MUST(mprotect(a + HUGE, HUGE, PROT_READ | PROT_WRITE));
	HOLDS(can_store(a + HUGE));
	HOLDS(not_zero(a + HUGE, HUGE) == 1);
	MUST(munmap(a + 2 * HUGE + 7 * PAGE, 9 * PAGE));
	HOLDS(!can_load(a + 2 * HUGE + 8 * PAGE));
	HOLDS(not_zero(a + 2 * HUGE, 7 * PAGE) == 0);
	HOLDS(can_store(a + 2 * HUGE + 20 * PAGE));
	HOLDS(not_zero(a + 2 * HUGE + 16 * PAGE, HUGE - 16 * PAGE) == 1);
	MUST(madvise(a + 3 * HUGE + PAGE, 5 * PAGE, MADV_DONTNEED));
	HOLDS(not_zero(a + 3 * HUGE, HUGE) == 0);
	MUST(madvise(a + 3 * HUGE, HUGE, MADV_DONTNEED));
	HOLDS(not_zero(a + 3 * HUGE, HUGE) == 0);
	MUST(munmap(a, 4 * HUGE));
}

static void moved(void)
{
	char *a = map(2 * HUGE), *place = map(6 * HUGE);
	HOLDS(not_zero(a, 2 * HUGE) == 0);
	a = MUST(mremap(a, 2 * HUGE, 2 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, place));
	HOLDS(not_zero(a, 2 * HUGE) == 0);
	a[1] = 1;
	a = MUST(mremap(a, 2 * HUGE, 2 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 3 * HUGE + 5 * PAGE));
	HOLDS(not_zero(a, 2 * HUGE) == 1);
	a[HUGE + 1] = 1;
	HOLDS(not_zero(a, 2 * HUGE) == 2);
	MUST(munmap(place, 6 * HUGE));
}

static void by_calls(void)
{
	static char buffer[PAGE];
	char *a = map(2 * HUGE);
	int ends[2];
	HOLDS(not_zero(a, 2 * HUGE) == 0);
	memset(buffer, 1, PAGE);
	MUST(pipe(ends));
	MUST(write(ends[1], a + 5 * PAGE, PAGE));
	MUST(read(ends[0], buffer, PAGE));
	HOLDS(not_zero(buffer, PAGE) == 0);
	memset(buffer, 1, PAGE);
	MUST(write(ends[1], buffer, PAGE));
	MUST(read(ends[0], a + 100, PAGE));
	HOLDS(not_zero(a, HUGE) == 513);
	struct iovec here = { buffer, PAGE }, there = { a + HUGE + PAGE, PAGE };
	TRY(process_vm_readv(getpid(), &here, 1, &there, 1, 0));
	HOLDS(not_zero(buffer, PAGE) == 0);
	buffer[0] = 1;
	TRY(process_vm_writev(getpid(), &here, 1, &there, 1, 0));
	HOLDS(not_zero(a + HUGE, HUGE) == 1);
	MUST(munmap(a, 2 * HUGE));
}

static void who_sees_it(void)
{
	char *a = map_as(2 * HUGE, PROT_READ, MADV_HUGEPAGE);
	look("read-only", a, 2 * HUGE);
	HOLDS(!can_store(a));
	MUST(mprotect(a, 2 * HUGE, PROT_READ | PROT_WRITE));
	HOLDS(can_store(a + HUGE));
	HOLDS(not_zero(a, 2 * HUGE) == 1);
	MUST(munmap(a, 2 * HUGE));
	a = map_as(2 * HUGE, PROT_READ | PROT_WRITE, MADV_NOHUGEPAGE);
	look("declined", a, 2 * HUGE);
	MUST(munmap(a, 2 * HUGE));
	MUST(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
	a = map(2 * HUGE);
	look("declined for all", a, 2 * HUGE);
	MUST(munmap(a, 2 * HUGE));
	MUST(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
	MUST(set("enabled", "never"));
	a = map(2 * HUGE);
	look("never", a, 2 * HUGE);
	MUST(munmap(a, 2 * HUGE));
	MUST(set("enabled", "madvise"));
	a = map_as(2 * HUGE, PROT_READ | PROT_WRITE, MADV_NORMAL);
	look("not asked for", a, 2 * HUGE);
	MUST(munmap(a, 2 * HUGE));
	a = map(2 * HUGE);
	look("asked for", a, 2 * HUGE);
	MUST(munmap(a, 2 * HUGE));
	MUST(set("use_zero_page", "0"));
	a = map(2 * HUGE);
	look("not to be used", a, 2 * HUGE);
	MUST(munmap(a, 2 * HUGE));
	MUST(set("use_zero_page", "1"));
	MUST(set("enabled", "always"));
	a = map_as(2 * HUGE, PROT_READ | PROT_WRITE, MADV_NORMAL);
	look("always", a, 2 * HUGE);
	a[HUGE] = 1;
	HOLDS(not_zero(a, 2 * HUGE) == 1);
	MUST(munmap(a, 2 * HUGE));
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = on_fault };
	MUST(sigaction(SIGSEGV, &act, 0));
	figures = argc > 1;
	knob();
	MUST(set("enabled", "always"));
	read_then_stored();
	forked();
	cut();
	moved();
	by_calls();
	who_sees_it();
	count("in the end");
	return 0;
}
