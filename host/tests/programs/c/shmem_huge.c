/* Huge pages of shared memory: which mappings and files get them with each setting, what is counted, and that every byte is
   right whatever is cut, punched, protected, moved and forked. It says the same on Linux. */
#include "khugepaged.h"
#include <setjmp.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/vfs.h>

#define HUGE (2l << 20)
#define PAGES 512
#define FOLDER "/sys/kernel/mm/transparent_hugepage/"
#define ENABLED FOLDER "shmem_enabled"

static sigjmp_buf refused;

static void show(const char *path)
{
	char line[256];
	FILE *file = fopen(path, "r");
	if (file && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		say("%s: %s", path, line);
	}
	if (file)
		fclose(file);
}

static long allocated, mapped;

static void counts(const char *when)
{
	long a = number("/proc/vmstat", "thp_file_alloc "), m = number("/proc/vmstat", "thp_file_mapped ");
	say("%s: %ld kB in huge pages, %ld kB mapped by them, %ld kB here; %ld more made, %ld more mapped", when,
	    number("/proc/meminfo", "ShmemHugePages:"), number("/proc/meminfo", "ShmemPmdMapped:"),
	    number("/proc/self/smaps", "ShmemPmdMapped:"), a - allocated, m - mapped);
	allocated = a;
	mapped = m;
}

/* What is mapped beyond the end of a file, and what again where parts were dropped, differs. */
static void forget(void)
{
	allocated = number("/proc/vmstat", "thp_file_alloc ");
	mapped = number("/proc/vmstat", "thp_file_mapped ");
}

static void fill(char *start, long pages, unsigned seed)
{
	for (long page = 0; page < pages; page++)
		*(volatile uint64_t *)(start + page * PAGE + page % 500 * 8) = seed + page;
}

static long wrong(const char *start, long pages, unsigned seed)
{
	long count = 0;
	for (long page = 0; page < pages; page++)
		count += *(volatile uint64_t *)(start + page * PAGE + page % 500 * 8) != seed + page;
	return count;
}

static long not_zero(const char *start, long bytes)
{
	long count = 0;
	for (long at = 0; at < bytes; at++)
		count += start[at] != 0;
	return count;
}

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(refused, 1);
}

static int can_store(char *at)
{
	if (sigsetjmp(refused, 1))
		return 0;
	*(volatile char *)at = *(volatile char *)at;
	return 1;
}

static char *shared(long bytes)
{
	return MUST(mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

static char *map(int fd, long bytes, long offset)
{
	return MUST(mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset));
}

static long kib(int fd)
{
	struct stat s;
	MUST(fstat(fd, &s));
	return s.st_blocks / 2;
}

static void knob(void)
{
	show(ENABLED);
	static const char *const words[] = { "always", "within_size", "advise", "deny", "force", "never\n", "no", "", "ALWAYS", "1" };
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		errno = 0;
		int done = words[i][0] ? set_knob(ENABLED, words[i]) : -1;
		say("\"%.6s\": %d %s", words[i], done, done ? strerrorname_np(errno) : "");
		show(ENABLED);
	}
}

/* A plain mapping, one that asks and one that declines, with each setting. */
static void who_gets_them(void)
{
	static const char *const words[] = { "never", "advise", "within_size", "always", "deny", "force" };
	for (int i = 0; i < 6; i++) {
		MUST(set_knob(ENABLED, words[i]));
		say("-- %s", words[i]);
		for (int advice = 0; advice < 3; advice++) {
			char *a = shared(2 * HUGE);
			if (advice)
				MUST(madvise(a, 2 * HUGE, advice == 1 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
			fill(a, 2 * PAGES, i);
			HOLDS(wrong(a, 2 * PAGES, i) == 0);
			counts(advice == 0 ? "plain" : advice == 1 ? "asks" : "declines");
			MUST(munmap(a, 2 * HUGE));
		}
		int fd = MUST(memfd_create("file", 0));
		MUST(ftruncate(fd, HUGE + HUGE / 2));
		char *a = map(fd, 2 * HUGE, 0);
		fill(a, PAGES, 7);
		a[HUGE] = 1;
		HOLDS(wrong(a, PAGES, 7) == 0);
		/* What is beyond the end of the file counts, too. */
		say("a file of 3 MiB has %ld kB", kib(fd));
		MUST(munmap(a, 2 * HUGE));
		close(fd);
		forget();
	}
}

static void one_touch(void)
{
	MUST(set_knob(ENABLED, "always"));
	char *a = shared(4 * HUGE);
	HOLDS(((uintptr_t)a & (HUGE - 1)) == 0);
	HOLDS(a[HUGE + 5] == 0);
	counts("one read");
	a[3 * HUGE - 1] = 1;
	counts("one stored to");
	HOLDS(not_zero(a, 4 * HUGE) == 1);
	counts("all read");
	fill(a, 4 * PAGES, 100);
	HOLDS(wrong(a, 4 * PAGES, 100) == 0);
	MUST(munmap(a + HUGE, HUGE));
	counts("one unmapped");
	HOLDS(wrong(a, PAGES, 100) == 0);
	MUST(munmap(a + 3 * PAGE, 5 * PAGE));
	counts("a part unmapped");
	HOLDS(wrong(a, 3, 100) == 0);
	HOLDS(wrong(a + 8 * PAGE, 1, 108) == 0 || *(uint64_t *)(a + 8 * PAGE + 64) == 108);
	MUST(munmap(a, 4 * HUGE));
	counts("all unmapped");
}

static void parts_protected(void)
{
	char *a = shared(3 * HUGE);
	fill(a, 3 * PAGES, 200);
	MUST(mprotect(a, HUGE, PROT_READ));
	HOLDS(!can_store(a + 77));
	HOLDS(wrong(a, 3 * PAGES, 200) == 0);
	counts("one read-only");
	MUST(mprotect(a, HUGE, PROT_READ | PROT_WRITE));
	HOLDS(can_store(a + 77));
	MUST(mprotect(a + HUGE + PAGE, PAGE, PROT_READ));
	HOLDS(can_store(a + HUGE));
	HOLDS(!can_store(a + HUGE + PAGE));
	HOLDS(can_store(a + HUGE + 2 * PAGE));
	MUST(mprotect(a + 2 * HUGE, HUGE, PROT_NONE));
	HOLDS(!can_store(a + 2 * HUGE));
	MUST(mprotect(a + 2 * HUGE, HUGE, PROT_READ));
	HOLDS(wrong(a, 3 * PAGES, 200) == 0);
	counts("a part read-only");
	MUST(munmap(a, 3 * HUGE));
}

static void forked(void)
{
	char *a = shared(2 * HUGE);
	fill(a, PAGES, 300);
	IN_CHILD("the child", {
		HOLDS(wrong(a, PAGES, 300) == 0);
		fill(a + HUGE, PAGES, 400);
		counts("in the child");
		fill(a, 10, 500);
	});
	HOLDS(wrong(a, 10, 500) == 0);
	HOLDS(wrong(a + HUGE, PAGES, 400) == 0);
	counts("after the child");
	MUST(munmap(a, 2 * HUGE));
	counts("unmapped");
}

static void moved(void)
{
	char *a = shared(2 * HUGE), *place = shared(6 * HUGE);
	fill(a, 2 * PAGES, 600);
	a = MUST(mremap(a, 2 * HUGE, 2 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, place));
	HOLDS(wrong(a, 2 * PAGES, 600) == 0);
	a = MUST(mremap(a, 2 * HUGE, 2 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 3 * HUGE + 16 * PAGE));
	HOLDS(wrong(a, 2 * PAGES, 600) == 0);
	MUST(munmap(place, 6 * HUGE));
	counts("moved and gone");
}

static void dropped(void)
{
	char *a = shared(2 * HUGE);
	fill(a, 2 * PAGES, 700);
	MUST(madvise(a, HUGE, MADV_DONTNEED));
	counts("one dropped");
	HOLDS(wrong(a, 2 * PAGES, 700) == 0);
	counts("and there again");
	MUST(madvise(a + HUGE, HUGE, MADV_REMOVE));
	counts("one removed");
	HOLDS(not_zero(a + HUGE, HUGE) == 0);
	MUST(madvise(a + HUGE + 5 * PAGE, 3 * PAGE, MADV_REMOVE));
	HOLDS(not_zero(a + HUGE, HUGE) == 0);
	HOLDS(wrong(a, PAGES, 700) == 0);
	MUST(madvise(a + 9 * PAGE, PAGE, MADV_DONTNEED));
	HOLDS(wrong(a, PAGES, 700) == 0);
	MUST(munmap(a, 2 * HUGE));
	forget();
	counts("all gone");
}

static void files(void)
{
	static char buffer[HUGE], other[HUGE];
	int fd = MUST(memfd_create("file", MFD_ALLOW_SEALING));
	for (long at = 0; at < HUGE; at++)
		buffer[at] = at * 7 + at / 4096;
	for (long at = 0; at < 2 * HUGE; at += 65536)
		MUST(write(fd, buffer + at % HUGE, 65536));
	counts("written");
	say("%ld kB", kib(fd));
	TRY(pread(fd, other, HUGE, HUGE));
	HOLDS(!memcmp(buffer, other, HUGE));
	/* From the middle of one: aligned alike, so the second can be one. */
	char *a = map(fd, HUGE + HUGE / 2, HUGE / 2);
	HOLDS(((uintptr_t)a & (HUGE - 1)) == HUGE / 2);
	HOLDS(!memcmp(a + HUGE / 2, buffer, HUGE));
	counts("mapped from the middle");
	TRY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HUGE + 10 * PAGE + 100, 20 * PAGE));
	HOLDS(not_zero(a + HUGE / 2 + 10 * PAGE + 100, 20 * PAGE) == 0);
	HOLDS(!memcmp(a + HUGE / 2, buffer, 10 * PAGE + 100));
	HOLDS(!memcmp(a + HUGE / 2 + 30 * PAGE + 100, buffer + 30 * PAGE + 100, HUGE - 30 * PAGE - 100));
	counts("a hole");
	TRY(ftruncate(fd, HUGE / 2 + 3 * PAGE + 5));
	counts("cut");
	TRY(ftruncate(fd, 2 * HUGE));
	HOLDS(!memcmp(a, buffer + HUGE / 2, 3 * PAGE + 5));
	HOLDS(not_zero(a + 3 * PAGE + 5, HUGE + HUGE / 2 - 3 * PAGE - 5) == 0);
	MUST(munmap(a, HUGE + HUGE / 2));
	forget();
	TRY(ftruncate(fd, 0));
	counts("empty");
	TRY(fallocate(fd, 0, 0, 2 * HUGE));
	say("%ld kB", kib(fd));
	counts("allocated");
	TRY(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
	TRY(mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	TRY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
	a = MUST(mmap(0, 2 * HUGE, PROT_READ, MAP_SHARED, fd, 0));
	HOLDS(not_zero(a, 2 * HUGE) == 0);
	HOLDS(!can_store(a));
	counts("sealed and read");
	MUST(munmap(a, 2 * HUGE));
	close(fd);
	counts("closed");
}

static void private(void)
{
	int fd = MUST(memfd_create("file", 0));
	MUST(ftruncate(fd, 2 * HUGE));
	char *a = map(fd, 2 * HUGE, 0);
	fill(a, 2 * PAGES, 800);
	char *b = MUST(mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
	HOLDS(wrong(b, 2 * PAGES, 800) == 0);
	fill(b + HUGE, PAGES, 900);
	HOLDS(wrong(b, PAGES, 800) == 0);
	HOLDS(wrong(b + HUGE, PAGES, 900) == 0);
	HOLDS(wrong(a, 2 * PAGES, 800) == 0);
	/* Direct into the pages of a huge one, and out of them. */
	int ends[2];
	MUST(pipe(ends));
	MUST(write(ends[1], a + 100, 3000));
	MUST(read(ends[0], a + HUGE + 5 * PAGE - 1000, 3000));
	HOLDS(!memcmp(a + HUGE + 5 * PAGE - 1000, a + 100, 3000));
	MUST(munmap(a, 2 * HUGE));
	MUST(munmap(b, 2 * HUGE));
	close(fd);
	counts("private and gone");
}

static void system_v(void)
{
	int id = MUST(shmget(IPC_PRIVATE, 2 * HUGE, IPC_CREAT | 0600));
	char *a = MUST(shmat(id, 0, 0));
	HOLDS(((uintptr_t)a & (HUGE - 1)) == 0);
	fill(a, 2 * PAGES, 1000);
	counts("System V");
	char *b = MUST(shmat(id, 0, SHM_RDONLY));
	HOLDS(wrong(b, 2 * PAGES, 1000) == 0);
	counts("twice");
	MUST(shmdt(a));
	HOLDS(wrong(b, 2 * PAGES, 1000) == 0);
	MUST(shmctl(id, IPC_RMID, 0));
	MUST(shmdt(b));
	counts("gone");
}

static void show_options(void)
{
	char line[512];
	FILE *file = fopen("/proc/mounts", "r");
	while (fgets(line, sizeof line, file))
		if (strstr(line, " /mnt/huge ")) {
			char *huge = strstr(line, "huge=");
			say("mounted with %.*s", huge ? (int)strcspn(huge, ", ") : 4, huge ? huge : "none");
		}
	fclose(file);
}

static void try_file(const char *when)
{
	static char buffer[65536];
	int fd = MUST(open("/mnt/huge/file", O_RDWR | O_CREAT | O_TRUNC, 0600));
	for (long at = 0; at < 2 * HUGE; at += sizeof buffer)
		MUST(write(fd, buffer, sizeof buffer));
	char *a = map(fd, 2 * HUGE, 0);
	fill(a, 2 * PAGES, 1100);
	HOLDS(wrong(a, 2 * PAGES, 1100) == 0);
	counts(when);
	MUST(munmap(a, 2 * HUGE));
	close(fd);
	MUST(unlink("/mnt/huge/file"));
}

static void mounts(void)
{
	MUST(set_knob(ENABLED, "never"));
	mkdir("/mnt", 0755);
	mkdir("/mnt/huge", 0755);
	static const char *const bad[] = { "huge", "huge=", "huge=deny", "huge=force", "huge=Always", "huge=2" };
	for (int i = 0; i < 6; i++) {
		errno = 0;
		int result = mount("none", "/mnt/huge", "tmpfs", 0, bad[i]);
		say("%s: %d %s", bad[i], result, result ? strerrorname_np(errno) : "");
	}
	TRY(mount("none", "/mnt/huge", "tmpfs", 0, "size=64m,huge=always"));
	show_options();
	try_file("always");
	MUST(set_knob(ENABLED, "deny"));
	try_file("denied");
	MUST(set_knob(ENABLED, "never"));
	TRY(mount("none", "/mnt/huge", "tmpfs", MS_REMOUNT, "huge=within_size"));
	show_options();
	try_file("within size");
	TRY(mount("none", "/mnt/huge", "tmpfs", MS_REMOUNT, "huge=advise"));
	show_options();
	try_file("advise");
	TRY(mount("none", "/mnt/huge", "tmpfs", MS_REMOUNT, "size=32m"));
	show_options();
	TRY(mount("none", "/mnt/huge", "tmpfs", MS_REMOUNT, "huge=deny"));
	show_options();
	TRY(mount("none", "/mnt/huge", "tmpfs", MS_REMOUNT, "huge=never"));
	show_options();
	try_file("never");
	MUST(set_knob(ENABLED, "force"));
	try_file("forced");
	MUST(set_knob(ENABLED, "never"));
	/* One that has no room for a huge page has room for pages. */
	TRY(mount("none", "/mnt/huge", "tmpfs", MS_REMOUNT, "size=3m,huge=always"));
	int fd = MUST(open("/mnt/huge/file", O_RDWR | O_CREAT, 0600));
	TRY(fallocate(fd, 0, 0, HUGE + HUGE / 2));
	TRY(fallocate(fd, 0, HUGE + HUGE / 2, PAGE));
	say("%ld kB", kib(fd));
	struct statfs s;
	MUST(fstatfs(fd, &s));
	say("%ld of %ld pages are free", (long)s.f_bfree, (long)s.f_blocks);
	close(fd);
	TRY(umount("/mnt/huge"));
	counts("unmounted");
}

int main(void)
{
	struct sigaction act = { .sa_handler = on_fault };
	MUST(sigaction(SIGSEGV, &act, 0));
	MUST(sigaction(SIGBUS, &act, 0));
	put_khugepaged_to_sleep();
	knob();
	MUST(set_knob(ENABLED, "never"));
	counts("at first");
	who_gets_them();
	one_touch();
	parts_protected();
	forked();
	moved();
	dropped();
	files();
	private();
	system_v();
	mounts();
	MUST(set_knob(ENABLED, "never"));
	return 0;
}
