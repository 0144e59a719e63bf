/* What is counted of memory, what limits it, and what /proc tells of it. */
#include "say.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sched.h>
#include <sys/uio.h>

#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define BOTH (PROT_READ | PROT_WRITE)

static long status(const char *name)
{
	static char text[8192];
	int file = MUST(open("/proc/self/status", O_RDONLY));
	text[MUST(read(file, text, sizeof text - 1))] = 0;
	close(file);
	char *line = strstr(text, name);
	return line ? atol(line + strlen(name) + 1) : -1;
}

/* "Locked:" of the area that begins at an address, in kB. */
static long locked_of(void *at)
{
	char line[512], want[32];
	long result = -1;
	int inside = 0;
	sprintf(want, "%lx-", (unsigned long)at);
	FILE *f = fopen("/proc/self/smaps", "r");
	while (fgets(line, sizeof line, f)) {
		if (strchr("0123456789abcdef", line[0]) && strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
			inside = !strncmp(line, want, strlen(want));
		if (inside && !strncmp(line, "Locked:", 7))
			result = atol(line + 7);
	}
	fclose(f);
	return result;
}

static void locked(void)
{
	status("VmLck");
	char *m = MUST(mmap(0, 16 * PAGE, BOTH, ANON, -1, 0));
	say("locked %ld", status("VmLck"));
	MUST(mlock(m, 4 * PAGE));
	say("four pages: %ld, %ld", status("VmLck"), locked_of(m));
	MUST(mlock(m + 2 * PAGE, 4 * PAGE));
	say("six: %ld", status("VmLck"));
	MUST(munlock(m + PAGE, PAGE));
	say("five: %ld", status("VmLck"));
	MUST(mlock(m + 100, 1));
	MUST(mlock(m + 100, 0));
	say("again: %ld", status("VmLck"));
	MUST(mlock2(m + 8 * PAGE, 4 * PAGE, MLOCK_ONFAULT));
	say("on fault: %ld, %ld", status("VmLck"), locked_of(m + 8 * PAGE));
	m[8 * PAGE] = 1;
	say("one used: %ld, %ld", status("VmLck"), locked_of(m + 8 * PAGE));
	MUST(munmap(m + 8 * PAGE, 2 * PAGE));
	say("unmapped two: %ld", status("VmLck"));
	char *moved = MUST(mremap(m + 10 * PAGE, 2 * PAGE, 6 * PAGE, MREMAP_MAYMOVE));
	say("grown: %ld", status("VmLck"));
	IN_CHILD("a child", say("child: %ld", status("VmLck")));
	MUST(munmap(moved, 6 * PAGE));
	MUST(mprotect(m, PAGE, PROT_READ));
	say("rights: %ld", status("VmLck"));
	MUST(munlock(m, 8 * PAGE));
	say("none: %ld", status("VmLck"));
	char *l = MUST(mmap(0, 4 * PAGE, BOTH, ANON | MAP_LOCKED, -1, 0));
	say("MAP_LOCKED: %ld, %ld", status("VmLck"), locked_of(l));
	MUST(munmap(l, 4 * PAGE));
	MUST(mlockall(MCL_CURRENT));
	HOLDS(status("VmLck") > 100);
	long before = status("VmLck");
	l = MUST(mmap(0, 4 * PAGE, BOTH, ANON, -1, 0));
	HOLDS(status("VmLck") == before);
	MUST(mlockall(MCL_FUTURE));
	l = MUST(mmap(0, 4 * PAGE, BOTH, ANON, -1, 0));
	say("future: %ld", status("VmLck") - before);
	MUST(mlockall(MCL_FUTURE | MCL_ONFAULT));
	/* Other rights: areas that are alike become one. */
	l = MUST(mmap(0, 4 * PAGE, PROT_READ, ANON, -1, 0));
	say("future on fault: %ld", locked_of(l));
	MUST(munlockall());
	say("none: %ld", status("VmLck"));
	l = MUST(mmap(0, 4 * PAGE, BOTH, ANON, -1, 0));
	say("none: %ld", status("VmLck"));
	/* The old place of memory that has moved and stays mapped is locked no more. */
	l = MUST(mmap(0, 4 * PAGE, BOTH, ANON | MAP_LOCKED, -1, 0));
	moved = MUST(mremap(l, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
	say("moved and kept: %ld, %ld, %ld", status("VmLck"), locked_of(l), locked_of(moved));
	TRY(madvise(l, PAGE, MADV_DONTNEED));
	TRY(madvise(moved, PAGE, MADV_DONTNEED));
	MUST(munmap(l, 4 * PAGE));
	MUST(munmap(moved, 4 * PAGE));
	say("none: %ld", status("VmLck"));
	/* So is a part, also if the new place is cut out of the same mapping. */
	l = MUST(mmap(0, 10 * PAGE, BOTH, ANON | MAP_LOCKED, -1, 0));
	moved = MUST(mremap(l, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, l + 4 * PAGE));
	say("cut out: %ld, %ld", status("VmLck"), locked_of(l));
	MUST(munmap(moved, 2 * PAGE));
	say("six: %ld", status("VmLck"));
	moved = MUST(mremap(l + 2 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
	say("a part: %ld", status("VmLck"));
	DO(mremap(l + 3 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0x123));
	MUST(munmap(moved, PAGE));
	MUST(munmap(l, 10 * PAGE));
	say("none: %ld", status("VmLck"));
	/* What is not to be had: the part before it is locked. */
	l = MUST(mmap(0, 4 * PAGE, BOTH, ANON, -1, 0));
	MUST(munmap(l + 2 * PAGE, PAGE));
	TRY(mlock(l, 4 * PAGE));
	say("before the hole: %ld", status("VmLck"));
	TRY(munlock(l, 4 * PAGE));
	say("none: %ld", status("VmLck"));
	struct rlimit small = { PAGE, PAGE };
	IN_CHILD("root under a limit",
		MUST(setrlimit(RLIMIT_MEMLOCK, &small)); TRY(mlock(m, 4 * PAGE)); TRY(mlockall(MCL_CURRENT)));
}

static uint64_t entry_of(int f, void *at)
{
	uint64_t entry = 0;
	if (pread(f, &entry, 8, (uintptr_t)at / PAGE * 8) != 8)
		return -1;
	return entry;
}

static void pagemap(void)
{
	int f = MUST(open("/proc/self/pagemap", O_RDONLY));
	char *m = MUST(mmap(0, 4 * PAGE, BOTH, ANON, -1, 0));
	m[0] = m[2 * PAGE] = 1;
	for (int i = 0; i < 4; i++) {
		uint64_t e = entry_of(f, m + i * PAGE);
		say("page %d: present %d, swapped %d, of a file %d, our own %d, frame %s", i, (int)(e >> 63), (int)(e >> 62 & 1),
			(int)(e >> 61 & 1), (int)(e >> 56 & 1), e << 9 ? "yes" : "no");
	}
	HOLDS((entry_of(f, m) << 9) != (entry_of(f, m + 2 * PAGE) << 9));
	char *s = MUST(mmap(0, PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	*s = 1;
	uint64_t e = entry_of(f, s);
	say("shared: present %d, of a file %d", (int)(e >> 63), (int)(e >> 61 & 1));
	uint64_t two[2];
	TRY(pread(f, two, 16, (uintptr_t)m / PAGE * 8));
	TRY(pread(f, two, 7, (uintptr_t)m / PAGE * 8));
	TRY(pread(f, two, 8, (uintptr_t)m / PAGE * 8 + 1));
	TRY(pread(f, two, 8, 0));
	say("nothing there: %lx", (long)two[0]);
	TRY(pread(f, two, 8, 1ul << 50));
	TRY(write(f, two, 8));
	TRY(pread(f, two, 0, 0));
	close(f);
}

static void knob(const char *name, const char *value)
{
	char path[128], before[64], after[64];
	sprintf(path, "/proc/sys/%s", name);
	int f = open(path, O_RDWR);
	if (f < 0) {
		say("%s: %s", name, strerrorname_np(errno));
		return;
	}
	int n = read(f, before, sizeof before - 1);
	before[n < 0 ? 0 : n] = 0;
	errno = 0;
	long wrote = pwrite(f, value, strlen(value), 0);
	int error = errno;
	n = pread(f, after, sizeof after - 1, 0);
	after[n < 0 ? 0 : n] = 0;
	if (n > 0 && after[n - 1] == '\n')
		after[n - 1] = 0;
	say("%s := %s: %ld %s, now %s", name, value, wrote, wrote < 0 ? strerrorname_np(error) : "", after);
	pwrite(f, before, strlen(before), 0);
	close(f);
}

static void knobs(void)
{
	knob("vm/min_free_kbytes", "20621");
	knob("kernel/pid_max", "5000");
	knob("kernel/pid_max", "300");
	knob("kernel/pid_max", "99999999");
	knob("kernel/pid_max", "4194305");
	knob("kernel/pid_max", "4194304");
	knob("fs/pipe-max-size", "65536");
	knob("fs/pipe-max-size", "5000");
	knob("fs/pipe-max-size", "0");
	knob("fs/pipe-user-pages-soft", "100");
	knob("fs/pipe-user-pages-hard", "100");
	knob("kernel/printk", "3\t4\t1\t7");
	knob("kernel/printk", "5");
	knob("vm/max_map_count", "1000");
	knob("vm/max_map_count", "-1");
}

static int maps(void)
{
	char line[512];
	int count = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f))
		count += !strstr(line, "vsyscall");
	fclose(f);
	return count;
}

enum { LAST = 16 };

/* What a process may still do that has one mapping more than it may have. `last` has the newest ones. */
static void at_the_limit(char *whole, char *two, char *last[LAST])
{
	int gone = 0;
	TRY(mprotect(whole + 2 * PAGE, PAGE, PROT_READ));
	TRY(munmap(whole + 3 * PAGE, PAGE));
	HOLDS(mmap(whole, PAGE, BOTH, ANON | MAP_FIXED, -1, 0) == MAP_FAILED && errno == ENOMEM);
	TRY(msync(whole, PAGE, MS_ASYNC));
	TRY(munmap(whole, PAGE));
	TRY(munmap(whole + 7 * PAGE, PAGE));
	TRY(munmap(two + 2 * PAGE, 4 * PAGE));
	HOLDS(mremap(two, 2 * PAGE, PAGE, 0) == two);
	TRY(munmap(whole + 3 * PAGE, PAGE));
	TRY(munmap(last[gone++], PAGE));
	TRY(munmap(whole + 3 * PAGE, PAGE));
	HOLDS(mmap(whole + PAGE, PAGE, BOTH, ANON | MAP_FIXED, -1, 0) == whole + PAGE);
	TRY(munmap(last[gone++], PAGE));
	TRY(munmap(last[gone++], PAGE));
	TRY(munmap(whole + 3 * PAGE, PAGE));
	TRY(munmap(whole + 5 * PAGE, PAGE));
	/* A move needs room for what is split on the way. */
	while (gone < LAST && mremap(whole + 4 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM)
		MUST(munmap(last[gone++], PAGE));
	say("a page moves after %d", gone);
	while (gone < LAST && mremap(whole + 5 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, HOLE) == MAP_FAILED
	       && errno == ENOMEM)
		MUST(munmap(last[gone++], PAGE));
	say("another goes to its place after %d", gone);
}

static void map_count(void)
{
	int f = open("/proc/sys/vm/max_map_count", O_RDWR), made = 0;
	if (f < 0)
		return;
	char *whole = MUST(mmap(0, 8 * PAGE, PROT_EXEC, ANON, -1, 0)), *last[LAST];
	char *two = MUST(mmap(0, 8 * PAGE, PROT_NONE, ANON, -1, 0));
	MUST(mprotect(two + 4 * PAGE, 4 * PAGE, PROT_EXEC | PROT_READ));
	MUST(write(f, "200", 3));
	for (int i = 0; i < 1000; i++) {
		char *m = mmap(0, PAGE, i & 1 ? PROT_READ : BOTH, ANON, -1, 0);
		if (m == MAP_FAILED)
			break;
		last[made++ % LAST] = m;
	}
	say("mappings where 200 may be: %d", maps());
	at_the_limit(whole, two, last);
	say("afterwards: %d", maps());
	MUST(pwrite(f, "500", 3, 0));
	while (mmap(0, 1, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
		;
	say("mappings where 500 may be: %d", maps());
	MUST(pwrite(f, "65530", 5, 0));
	close(f);
}

static void pipes(void)
{
	int p[2];
	MUST(pipe(p));
	int f = open("/proc/sys/fs/pipe-max-size", O_RDWR);
	if (f < 0)
		return;
	MUST(write(f, "65536", 5));
	TRY(fcntl(p[1], F_SETPIPE_SZ, 65536));
	TRY(fcntl(p[1], F_SETPIPE_SZ, 131072));
	MUST(pwrite(f, "1048576", 7, 0));
	TRY(fcntl(p[1], F_SETPIPE_SZ, 131072));
}

static void dumps(void)
{
	struct rlimit none = { 0, 0 }, some = { 1 << 20, 1 << 20 };
	int status;
	pid_t p = MUST(fork());
	if (p == 0) {
		setrlimit(RLIMIT_CORE, &none);
		abort();
	}
	MUST(waitpid(p, &status, 0));
	say("without room: signal %d, dumped %d", WTERMSIG(status), !!WCOREDUMP(status));
	p = MUST(fork());
	if (p == 0) {
		setrlimit(RLIMIT_CORE, &some);
		raise(SIGTERM);
	}
	MUST(waitpid(p, &status, 0));
	say("SIGTERM: signal %d, dumped %d", WTERMSIG(status), !!WCOREDUMP(status));
}

/* Lines of /proc/self/maps that lie in a range. */
static int lines_in(char *m, size_t bytes)
{
	char line[512];
	int lines = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f)) {
		unsigned long start = strtoul(line, 0, 16);
		lines += start >= (unsigned long)m && start < (unsigned long)m + bytes;
	}
	fclose(f);
	return lines;
}

/* Bytes of a file go by a shared mapping that may get the right to store. */
static void removed(void)
{
	int file = MUST(memfd_create("removed", 0));
	MUST(ftruncate(file, 2 * PAGE));
	char *at = MUST(mmap(0, 2 * PAGE, BOTH, MAP_SHARED, file, 0));
	at[0] = 1;
	MUST(mprotect(at, 2 * PAGE, PROT_READ));
	TRY(madvise(at, PAGE, MADV_REMOVE));
	say("the file has %d", at[0]);
	MUST(mprotect(at, 2 * PAGE, BOTH));
	at[0] = 2;
	TRY(madvise(at, PAGE, MADV_REMOVE));
	say("the file has %d", at[0]);
	char *reader = MUST(mmap(0, PAGE, PROT_READ, MAP_SHARED, file, 0));
	TRY(madvise(reader, PAGE, MADV_REMOVE));
	MUST(mlock(reader, PAGE));
	TRY(madvise(reader, PAGE, MADV_REMOVE));
	char *copy = MUST(mmap(0, PAGE, BOTH, MAP_PRIVATE, file, 0));
	TRY(madvise(copy, PAGE, MADV_REMOVE));
	char *shared = MUST(mmap(0, PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	shared[0] = 1;
	TRY(madvise(shared, PAGE, MADV_REMOVE));
	say("the memory has %d", shared[0]);
	char *own = MUST(mmap(0, PAGE, BOTH, ANON, -1, 0));
	TRY(madvise(own, PAGE, MADV_REMOVE));
	close(file);
}

/* Another process reads only what may be loaded, though a CPU loads wherever there is any right. */
static void of_another(void)
{
	static const struct { const char *name; int rights; } kinds[] = {
		{ "none", PROT_NONE }, { "load", PROT_READ }, { "store", PROT_WRITE }, { "both", BOTH }, { "fetch", PROT_EXEC },
		{ "load and fetch", PROT_READ | PROT_EXEC }, { "store and fetch", PROT_WRITE | PROT_EXEC },
	};
	static char buffer[3 * PAGE];
	char *at = MUST(mmap(0, 3 * PAGE, BOTH, ANON, -1, 0));
	struct iovec own = { buffer, PAGE }, other = { at + PAGE, PAGE }, all[] = { { at, 2 * PAGE }, { at + 2 * PAGE, PAGE } };
	memset(at, 1, 3 * PAGE);
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		MUST(mprotect(at + PAGE, PAGE, kinds[i].rights));
		say("rights: %s", kinds[i].name);
		own.iov_len = PAGE;
		TRY(process_vm_readv(getpid(), &own, 1, &other, 1, 0));
		TRY(process_vm_writev(getpid(), &own, 1, &other, 1, 0));
		own.iov_len = 3 * PAGE;
		TRY(process_vm_readv(getpid(), &own, 1, all, 2, 0));
	}
	/* Pages that are not there yet. */
	char *fresh = MUST(mmap(0, 2 * PAGE, PROT_WRITE, ANON, -1, 0));
	struct iovec missing = { fresh, PAGE };
	TRY(process_vm_readv(getpid(), &own, 1, &missing, 1, 0));
	TRY(process_vm_writev(getpid(), &own, 1, &missing, 1, 0));
	MUST(mprotect(fresh, 2 * PAGE, PROT_READ));
	missing.iov_base = fresh + PAGE;
	TRY(process_vm_readv(getpid(), &own, 1, &missing, 1, 0));
	TRY(process_vm_writev(getpid(), &own, 1, &missing, 1, 0));
}

/* Calls that change many areas do so with each of them, and leave the sums right. */
static void many_areas(void)
{
	enum { PAGES = 1000 };
	size_t bytes = PAGES * PAGE;
	char *m = MUST(mmap(0, bytes, BOTH, ANON | MAP_NORESERVE, -1, 0));
	long before = status("VmData");
	for (int i = 0; i < PAGES; i += 2)
		MUST(mprotect(m + i * PAGE, PAGE, PROT_READ));
	say("split: %d, %ld", lines_in(m, bytes), status("VmData") - before);
	MUST(mprotect(m, bytes, BOTH));
	say("joined: %d, %ld", lines_in(m, bytes), status("VmData") - before);
	for (int i = 0; i < PAGES; i += 2)
		MUST(mprotect(m + i * PAGE, PAGE, PROT_READ));
	TRY(madvise(m, bytes, MADV_DONTFORK));
	IN_CHILD("a child", say("without them: %d", lines_in(m, bytes)));
	TRY(madvise(m, bytes, MADV_DOFORK));
	TRY(mlock(m, bytes));
	say("locked: %ld", status("VmLck"));
	IN_CHILD("a child", say("with them: %d, locked %ld", lines_in(m, bytes), status("VmLck")));
	TRY(munlock(m, bytes));
	say("unlocked: %ld, %d", status("VmLck"), lines_in(m, bytes));
	MUST(mprotect(m, bytes, PROT_READ));
	say("read-only: %ld", status("VmData") - before);
	for (int i = 0; i < PAGES; i++)
		if (m[i * PAGE])
			say("page %d has changed", i);
	MUST(munmap(m, bytes));
}

/* Changes of many areas end where they are to end, though the last area goes on with the same rights. */
static void ends_of_changes(void)
{
	int counts[] = { 64, 65, 66, 128, 129, 193 };
	for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
		int pages = counts[i], p[2];
		size_t bytes = (pages + 9) * PAGE;
		MUST(pipe(p));
		char *m = MUST(mmap(0, bytes, BOTH, ANON | MAP_NORESERVE, -1, 0));
		long before = status("VmData");
		for (int n = 0; n < pages - 1; n += 2)
			MUST(mprotect(m + n * PAGE, PAGE, PROT_READ));
		MUST(mprotect(m + (pages - 1) * PAGE, 10 * PAGE, PROT_EXEC | PROT_READ));
		MUST(mprotect(m, pages * PAGE, PROT_NONE));
		errno = 0;
		int inside = write(p[1], m + (pages - 1) * PAGE, 1), outside = write(p[1], m + pages * PAGE, 1);
		say("%d pages: last %d, next %d, data %ld", pages, inside, outside, status("VmData") - before);
		MUST(mprotect(m, bytes, BOTH));
		for (int n = 0; n < pages - 1; n += 2)
			MUST(mprotect(m + n * PAGE, PAGE, PROT_READ));
		MUST(mprotect(m + (pages - 1) * PAGE, 10 * PAGE, PROT_EXEC | PROT_READ));
		MUST(madvise(m, pages * PAGE, MADV_DONTFORK));
		IN_CHILD("a child", say("next %zd", write(p[1], m + pages * PAGE, 1)));
		MUST(munmap(m, bytes));
		say("data %ld", status("VmData") - before);
		close(p[0]);
		close(p[1]);
	}
}

int main(void)
{
	say("== locked"); locked();
	say("== pagemap"); pagemap();
	say("== knobs"); knobs();
	say("== map count"); map_count();
	say("== pipes"); pipes();
	say("== dumps"); dumps();
	say("== removed"); removed();
	say("== of another"); of_another();
	say("== many areas"); many_areas();
	say("== ends of changes"); ends_of_changes();
	return 0;
}
