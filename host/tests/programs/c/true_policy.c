/* Memory policies on a machine with one node, and what mmap refuses before it looks further. */
#include "say.h"

#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define BOTH (PROT_READ | PROT_WRITE)
#define STATIC (1 << 15)
#define RELATIVE (1 << 14)

enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL, MANY };

static long get(int *mode, unsigned long *mask, unsigned long bits, void *at, unsigned long flags)
{
	return syscall(SYS_get_mempolicy, mode, mask, bits, at, flags);
}

static long set(int mode, unsigned long *mask, unsigned long bits)
{
	return syscall(SYS_set_mempolicy, mode, mask, bits);
}

static long bind_to(void *at, unsigned long bytes, int mode, unsigned long *mask, unsigned long bits, unsigned flags)
{
	return syscall(SYS_mbind, at, bytes, mode, mask, bits, flags);
}

static void show(const char *when, void *at)
{
	int mode = -1;
	unsigned long mask[16] = { -1ul };
	errno = 0;
	long result = get(&mode, mask, 1024, at, at ? 2 : 0);
	say("%s: %ld %s mode %#x mask %lx %lx", when, result, result ? strerrorname_np(errno) : "", mode, mask[0], mask[1]);
}

static void of_thread(void)
{
	unsigned long none = 0, first = 1, second = 2, many[17] = { 1, [16] = 1 };
	int mode;
	show("at first", 0);
	TRY(get(0, 0, 0, 0, 0));
	TRY(get(&mode, 0, 0, 0, 8));
	TRY(get(&mode, 0, 0, &mode, 0));
	TRY(get(&mode, &first, 0, 0, 0));
	TRY(get((int *)HOLE, 0, 0, 0, 0));
	TRY(get(&mode, (void *)HOLE, 64, 0, 4));
	TRY(get(&mode, 0, 0, 0, 4 | 2));
	TRY(get(&mode, 0, 0, HOLE, 2));
	TRY(get(&mode, 0, 0, 0, 1));
	for (int m = 0; m < 6; m++) {
		static const int flags[] = { 0, STATIC, RELATIVE, STATIC | RELATIVE };
		for (int f = 0; f < 4; f++) {
			say("mode %d flags %x", m, flags[f]);
			TRY(set(m | flags[f], 0, 0));
			TRY(set(m | flags[f], &none, 64));
			TRY(set(m | flags[f], &second, 64));
			TRY(set(m | flags[f], &first, 64));
			show("now", 0);
		}
	}
	TRY(set(BIND, many, 17 * 64));
	TRY(set(MANY + 1, (void *)HOLE, 64));
	TRY(set(BIND | STATIC | RELATIVE, (void *)HOLE, 64));
	TRY(set(INTERLEAVE | 1 << 13, (void *)HOLE, 64));
	TRY(set(BIND, (void *)HOLE, 64));
	TRY(bind_to(HOLE, PAGE, MANY + 1, (void *)HOLE, 64, 0));
	TRY(bind_to(HOLE, PAGE, BIND, (void *)HOLE, 64, 1 << 9));
	TRY(set(BIND, many, 16 * 64 + 1));
	TRY(set(BIND, &first, 1));
	TRY(set(BIND, &first, 2));
	TRY(set(BIND, &first, 1ul << 40));
	TRY(set(BIND, (void *)HOLE, 64));
	TRY(set(INTERLEAVE, &first, 64));
	TRY(get(&mode, 0, 0, 0, 1));
	say("next node %d", mode);
	IN_CHILD("child", show("inherited", 0));
	TRY(set(DEFAULT, 0, 0));
	IN_CHILD("child", show("inherited", 0));
}

static int policy_lines(void *at, char *line, size_t bytes)
{
	char want[32];
	sprintf(want, "%08lx ", (unsigned long)at);
	FILE *f = fopen("/proc/self/numa_maps", "r");
	int found = 0;
	while (f && !found && fgets(line, bytes, f))
		found = !strncmp(line, want, strlen(want));
	if (f)
		fclose(f);
	return found;
}

static void of_areas(void)
{
	unsigned long first = 1, second = 2;
	char *m = MUST(mmap(0, 16 * PAGE, BOTH, ANON, -1, 0)), line[512];
	int mode;
	MUST(mprotect(m, 2 * PAGE, PROT_NONE));
	m += 2 * PAGE;
	memset(m, 1, 3 * PAGE);
	show("area", m);
	TRY(bind_to(m, 4 * PAGE, BIND, &first, 64, 0));
	show("bound", m);
	show("behind", m + 4 * PAGE);
	TRY(bind_to(m + 1, PAGE, BIND, &first, 64, 0));
	TRY(bind_to(m, 0, BIND, &first, 64, 0));
	TRY(bind_to(m, -(unsigned long)PAGE, BIND, &first, 64, 0));
	TRY(bind_to(m, PAGE, BIND, &second, 64, 0));
	TRY(bind_to(m, PAGE, BIND, 0, 0, 0));
	TRY(bind_to(m, PAGE, 99, &first, 64, 0));
	TRY(bind_to(m, PAGE, BIND, &first, 64, 8));
	TRY(bind_to(m, PAGE, BIND, &first, 64, 7));
	TRY(bind_to(m, PAGE, BIND | STATIC, &first, 64, 1));
	show("static", m);
	TRY(bind_to(HOLE, PAGE, BIND, &first, 64, 0));
	TRY(get(&mode, 0, 0, m, 3));
	say("node %d", mode);
	HOLDS(policy_lines(m, line, sizeof line) && strstr(line, "bind=static:0 "));
	HOLDS(strstr(line, " anon=1 dirty=1 ") && strstr(line, " N0=1 kernelpagesize_kB=4\n"));
	HOLDS(policy_lines(m + PAGE, line, sizeof line) && strstr(line, "bind:0 ") && strstr(line, " anon=2 "));
	HOLDS(policy_lines(m + 4 * PAGE, line, sizeof line) && strstr(line, "default\n"));
	IN_CHILD("child", show("inherited", m));
	TRY(bind_to(m, 4 * PAGE, DEFAULT, 0, 0, 0));
	show("none", m);
}

static void of_pages(void)
{
	char *m = MUST(mmap(0, 4 * PAGE, BOTH, ANON, -1, 0));
	unsigned long first = 1, second = 2;
	int status[4] = { 7, 7, 7, 7 }, to[4] = { 0, 0, 0, 0 }, elsewhere[4] = { 0, 1, 0, 0 };
	void *pages[4] = { m, m + PAGE, HOLE, m + 2 * PAGE + 5 };
	MUST(madvise(m, 4 * PAGE, MADV_NOHUGEPAGE));
	m[0] = m[2 * PAGE] = 1;
	TRY(syscall(SYS_move_pages, 0, 4, pages, 0, status, 0));
	say("%d %d %d %d", status[0], status[1], status[2], status[3]);
	TRY(syscall(SYS_move_pages, 0, 4, pages, to, status, 2));
	say("%d %d %d %d", status[0], status[1], status[2], status[3]);
	TRY(syscall(SYS_move_pages, 0, 4, pages, elsewhere, status, 2));
	TRY(syscall(SYS_move_pages, 0, 4, pages, 0, status, 1));
	TRY(syscall(SYS_move_pages, 0, 4, HOLE, 0, status, 0));
	TRY(syscall(SYS_move_pages, 0, 4, pages, HOLE, status, 0));
	TRY(syscall(SYS_move_pages, 0, 4, pages, 0, HOLE, 0));
	TRY(syscall(SYS_move_pages, 999999, 4, pages, 0, status, 0));
	TRY(syscall(SYS_migrate_pages, 0, 64, &first, &first));
	TRY(syscall(SYS_migrate_pages, 0, 64, &first, &second));
	TRY(syscall(SYS_migrate_pages, 999999, 64, &first, &first));
	TRY(syscall(SYS_migrate_pages, 0, 64, HOLE, &first));
}

static void refused(void)
{
	int fd = MUST(open("/dev/shm/refused", O_RDWR | O_CREAT | O_TRUNC, 0600));
	int writes = MUST(open("/dev/shm/refused", O_WRONLY));
	MUST(unlink("/dev/shm/refused"));
	MUST(ftruncate(fd, PAGE));
	TRY(mmap(0, 0, PROT_READ, MAP_PRIVATE, writes, 0) == MAP_FAILED ? -1 : 0);
	TRY(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, writes, 0) == MAP_FAILED ? -1 : 0);
	TRY(mmap(0, 0, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED ? -1 : 0);
	TRY(mmap(0, PAGE, PROT_READ, 0, -1, 0) == MAP_FAILED ? -1 : 0);
	TRY(mmap(0, 0, PROT_READ, ANON, -1, 0) == MAP_FAILED ? -1 : 0);
	static const unsigned flags[] = { 0, 0x80000, 0x2000000, 1 << 28, 0x8000, 0x20000, 0x800, 0x20, 0x80, 0x200 };
	for (int i = 0; i < 10; i++) {
		say("flag %#x", flags[i]);
		TRY(mmap(0, PAGE, PROT_READ, MAP_SHARED_VALIDATE | flags[i], fd, 0) == MAP_FAILED ? -1 : 0);
		TRY(mmap(0, PAGE, PROT_READ, MAP_SHARED | flags[i], fd, 0) == MAP_FAILED ? -1 : 0);
	}
	TRY(mmap(HOLE, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED ? -1 : 0);
	TRY(mmap(HOLE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED ? -1 : 0);
}

static void reordered(void)
{
	int fd = MUST(memfd_create("reordered", 0));
	MUST(ftruncate(fd, 8 * PAGE));
	for (int i = 0; i < 8; i++)
		MUST(pwrite(fd, (char[]) { 'a' + i }, 1, i * PAGE));
	char *m = MUST(mmap(0, 8 * PAGE, BOTH, MAP_SHARED, fd, 0));
	char *own = MUST(mmap(0, 2 * PAGE, BOTH, ANON, -1, 0));
	for (int i = 0; i < 8; i += 2)
		TRY(remap_file_pages(m + i * PAGE, 2 * PAGE, 0, 6 - i, 0));
	TRY(remap_file_pages(m + PAGE, 1, 0, 0, 0));
	TRY(remap_file_pages(m + PAGE, PAGE, PROT_READ, 0, 0));
	TRY(remap_file_pages(own, PAGE, 0, 0, 0));
	TRY(remap_file_pages(HOLE, PAGE, 0, 0, 0));
	TRY(remap_file_pages(m, PAGE, 0, -1ul, 0));
	TRY(remap_file_pages(m + 7 * PAGE, 2 * PAGE, 0, 0, 0));
	say("%c%c%c%c%c%c%c%c", m[0], m[PAGE], m[2 * PAGE], m[3 * PAGE], m[4 * PAGE], m[5 * PAGE], m[6 * PAGE], m[7 * PAGE]);
	TRY(remap_file_pages(m + 100, 8 * PAGE + 100, 0, 0, 0));
	m[3 * PAGE] = 'x';
	char byte;
	MUST(pread(fd, &byte, 1, 3 * PAGE));
	say("%c %c", m[7 * PAGE], byte);
}

/* Pages of a file that another process has brought in are in memory here, too. */
static void resident(void)
{
	unsigned char there[4] = { 9, 9, 9, 9 };
	int fd = MUST(memfd_create("resident", 0));
	MUST(ftruncate(fd, 4 * PAGE));
	char *file = MUST(mmap(0, 4 * PAGE, BOTH, MAP_SHARED, fd, 0));
	char *shared = MUST(mmap(0, 4 * PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	IN_CHILD("child", file[PAGE] = shared[2 * PAGE] = 1);
	MUST(mincore(file, 4 * PAGE, there));
	say("of the file: %d %d %d %d", there[0], there[1], there[2], there[3]);
	MUST(mincore(shared, 4 * PAGE, there));
	say("of shared memory: %d %d %d %d", there[0], there[1], there[2], there[3]);
	/* A store to a private mapping brings in the page that it copies. */
	char *own = MUST(mmap(0, 4 * PAGE, BOTH, MAP_PRIVATE, fd, 0));
	IN_CHILD("child", own[3 * PAGE] = 1);
	MUST(mincore(own, 4 * PAGE, there));
	say("of a private mapping: %d %d %d %d", there[0], there[1], there[2], there[3]);
	IN_CHILD("child", MUST(mlock(own, 3 * PAGE)));
	MUST(mincore(own, 4 * PAGE, there));
	say("after a lock: %d %d %d %d", there[0], there[1], there[2], there[3]);
}

int main(void)
{
	say("== of the thread"); of_thread();
	say("== of areas"); of_areas();
	say("== of pages"); of_pages();
	say("== refused"); refused();
	say("== reordered"); reordered();
	say("== resident"); resident();
	return 0;
}
