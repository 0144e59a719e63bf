/* Pages of 1 GiB, as programs see them. What Linux does is right. Runs as the only user of a guest's pools, in 8 GiB. */
#include "pool.h"
#include <stdint.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#define GIB (1UL << 30)
#define SHIFT_GIB (30 << 26)
#define SHIFT_MIB (21 << 26)
#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define SYS "/sys/kernel/mm/hugepages/hugepages-1048576kB/"
#define SYS_MIB "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define NODE "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/"

static void show(const char *path)
{
	char text[64] = "";
	int fd = open(path, O_RDONLY);

	if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
		printf("%s: %s\n", path, strerrorname_np(errno));
	else
		printf("%s: %s%s", path, text, text[0] ? "" : "\n");
	close(fd);
}

static void set(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	errno = 0;
	long written = write(fd, text, strlen(text));
	printf("%s < %s: %s\n", path, text, written == (long)strlen(text) ? "ok" : strerrorname_np(errno));
	close(fd);
}

static long number(const char *path)
{
	long value = -1;
	FILE *file = fopen(path, "r");

	if (file) {
		if (fscanf(file, "%ld", &value) != 1)
			value = -1;
		fclose(file);
	}
	return value;
}

/* The counters of both pools. */
static void pools(const char *when)
{
	static const char *const names[] = {"nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages"};

	printf("%s:", when);
	for (int pool = 0; pool < 2; pool++) {
		printf("%s", pool ? ", " : " ");
		for (int name = 0; name < 4; name++) {
			char path[128];
			snprintf(path, sizeof path, "%s%s", pool ? SYS_MIB : SYS, names[name]);
			printf("%s%ld", name ? " " : "", number(path));
		}
	}
	printf("\n");
}

static char *map_gib(size_t bytes, int flags)
{
	return map_pool(bytes, flags | SHIFT_GIB);
}

/* Lines of smaps of the mapping at an address. */
static void smaps(const char *at)
{
	static const char *const names[] = {"Size:",           "Rss:",           "KernelPageSize:",
	                                    "MMUPageSize:",    "Shared_Hugetlb:", "Private_Hugetlb:"};
	char line[256], start[32];
	int inside = 0;
	FILE *file = fopen("/proc/self/smaps", "r");

	snprintf(start, sizeof start, "%lx-", (unsigned long)at);
	while (file && fgets(line, sizeof line, file)) {
		if (strchr(line, '-') && strchr(line, ':') > strchr(line, '-'))
			inside = !strncmp(line, start, strlen(start));
		for (int name = 0; inside && name < 6; name++)
			if (!strncmp(line, names[name], strlen(names[name])))
				printf("  %s", line);
	}
	fclose(file);
}

/* What pagemap tells of a mapped page: its flags, and whether its frames follow each other. */
static void frames_of(const char *what, const char *at, size_t bytes)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	size_t count = bytes / 4096, apart = 0;
	uint64_t *entries = malloc(count * 8);

	if (pread(fd, entries, count * 8, (uintptr_t)at / 4096 * 8) != (ssize_t)(count * 8))
		printf("%s: cannot be read\n", what);
	for (size_t i = 1; i < count; i++)
		apart += entries[i] != entries[0] + i;
	printf("%s: present %d, of a file %d, our own %d, frames that are not next to the one before: %zu\n", what,
	       (int)(entries[0] >> 63), (int)(entries[0] >> 61 & 1), (int)(entries[0] >> 56 & 1), apart);
	free(entries);
	close(fd);
}

static void knobs(void)
{
	show(SYS "nr_hugepages");
	show(SYS "nr_overcommit_hugepages");
	show(SYS "demote_size");
	show(SYS_MIB "demote_size");
	show(SYS "demote");
	set(SYS "nr_overcommit_hugepages", "1");
	set(SYS "demote_size", "1G");
	set(SYS "demote_size", "64K");
	set(SYS "demote_size", "2048kB");
	show(SYS "demote_size");
	set(SYS "demote", "x");
	set(SYS "demote", "1");
	set(SYS "nr_hugepages", "x");
	set(SYS "nr_hugepages", "2");
	show(NODE "nr_hugepages");
	show(NODE "free_hugepages");
	show(NODE "surplus_hugepages");
	set(NODE "nr_hugepages", "3");
	pools("three");
	printf("Hugepagesize %ld, Hugetlb %ld, HugePages_Total %ld\n", meminfo("Hugepagesize"), meminfo("Hugetlb"),
	       meminfo("HugePages_Total"));
}

static void private_memory(void)
{
	char *at = map_gib(1, MAP_PRIVATE);

	printf("aligned: %d\n", (unsigned long)at % GIB == 0);
	pools("a byte mapped");
	RESULT("load", touch(at + GIB / 2, 0));
	pools("loaded");
	RESULT("store", touch(at + GIB - 1, 1));
	smaps(at);
	frames_of("private", at, GIB);
	RESULT("protect a part", mprotect(at, HUGE, PROT_READ));
	RESULT("protect from a part on", mprotect(at + HUGE, GIB - HUGE, PROT_READ));
	RESULT("protect", mprotect(at, GIB, PROT_READ));
	RESULT("store", touch(at, 1));
	RESULT("allow", mprotect(at, GIB, PROT_READ | PROT_WRITE));
	RESULT("store", touch(at, 1));
	RESULT("do not need a part", madvise(at + HUGE, HUGE, MADV_DONTNEED));
	RESULT("do not need half", madvise(at, GIB / 2, MADV_DONTNEED));
	pools("half not needed");
	printf("still there: %d %d\n", at[0], at[GIB - 1]);
	RESULT("do not need", madvise(at, GIB, MADV_DONTNEED));
	pools("not needed");
	RESULT("unmap a part", munmap(at, HUGE));
	RESULT("unmap from a part on", munmap(at + HUGE, GIB - HUGE));
	RESULT("move", (mremap(at, GIB, 2 * GIB, MREMAP_MAYMOVE) == MAP_FAILED) ? -1 : 0);
	RESULT("shrink to a part", (mremap(at, GIB, HUGE, 0) == MAP_FAILED) ? -1 : 0);
	RESULT("unmap", munmap(at, GIB));
	pools("unmapped");
	WORKS("four", map_gib(4 * GIB, MAP_PRIVATE));
	WORKS("no length", map_gib(0, MAP_PRIVATE));
	WORKS("fixed at a part", mmap((void *)(64 * GIB + HUGE), GIB, PROT_READ,
	                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED | SHIFT_GIB, -1, 0));
	at = mmap((void *)(64 * GIB), GIB, PROT_READ | PROT_WRITE,
	          MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED_NOREPLACE | SHIFT_GIB, -1, 0);
	printf("fixed: %d\n", at == (char *)(64 * GIB));
	RESULT("store", touch(at, 1));
	WORKS("over it", mmap((void *)(64 * GIB + HUGE), HUGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	WORKS("a small one at it", mmap((void *)(64 * GIB), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	RESULT("unmap", munmap(at, GIB));
	char *big = map_gib(3 * GIB, MAP_PRIVATE);
	RESULT("store in the second", touch(big + GIB, 1));
	RESULT("unmap the first and the last",
	       munmap(big, GIB) || munmap(big + 2 * GIB, GIB));
	pools("the second is left");
	char *moved = mremap(big + GIB, GIB, GIB, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(128 * GIB));
	printf("moved: %d %d\n", moved == (char *)(128 * GIB), moved[0]);
	WORKS("move to a part", mremap(moved, GIB, GIB, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(96 * GIB + HUGE)));
	munmap(moved, GIB);
	pools("nothing");
}

static void families(void)
{
	char *at = map_gib(GIB, MAP_PRIVATE);
	int status;

	at[5] = 7;
	at[GIB - 5] = 8;
	pid_t child = fork();
	if (!child) {
		if (at[5] != 7 || at[GIB - 5] != 8)
			_exit(1);
		at[5] = 9;
		_exit(at[GIB - 5] == 8 && at[5] == 9 ? 0 : 2);
	}
	waitpid(child, &status, 0);
	printf("the child's copy: %d, here %d %d\n", status, at[5], at[GIB - 5]);
	pools("one");
	/* No page is left for a copy: the parent keeps its own, the child loses it. */
	char *rest = map_gib(2 * GIB, MAP_PRIVATE);
	rest[0] = rest[GIB] = 1;
	pools("all");
	int told[2];
	pipe(told);
	child = fork();
	if (!child) {
		char byte;
		signal(SIGBUS, SIG_DFL);
		read(told[0], &byte, 1);
		_exit(at[5]);
	}
	at[5] = 11;
	write(told[1], "", 1);
	waitpid(child, &status, 0);
	printf("the child that lost it: %s\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS ? "SIGBUS" : "went on");
	pools("still all");
	munmap(rest, 2 * GIB);
	char *shared = map_gib(2 * GIB, MAP_SHARED);
	child = fork();
	if (!child) {
		shared[GIB + 3] = 12;
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("shared: %d\n", shared[GIB + 3]);
	frames_of("shared", shared + GIB, GIB);
	pools("with one that is shared");
	munmap(shared, 2 * GIB);
	rest = map_gib(3 * GIB, MAP_PRIVATE | MAP_NORESERVE);
	RESULT("the first", touch(rest, 1));
	RESULT("the second", touch(rest + GIB, 1));
	RESULT("the third", touch(rest + 2 * GIB, 1));
	munmap(rest, 3 * GIB);
	munmap(at, GIB);
	pools("none");
}

static void in_files(void)
{
	int fd = memfd_create("gib", MFD_HUGETLB | SHIFT_GIB);
	struct stat status;
	struct statfs system;
	char bytes[8] = "";

	RESULT("a part", ftruncate(fd, HUGE));
	RESULT("two", ftruncate(fd, 2 * GIB));
	fstat(fd, &status);
	fstatfs(fd, &system);
	printf("%ld bytes in blocks of %ld, a file system's %ld\n", (long)status.st_size, (long)status.st_blksize,
	       (long)system.f_bsize);
	char *part = mmap(NULL, HUGE, PROT_READ, MAP_SHARED, fd, 0);
	printf("map a part: %d\n", part != MAP_FAILED);
	pools("a part mapped");
	RESULT("unmap a part", munmap(part, HUGE));
	RESULT("unmap all", munmap(part, GIB));
	pools("nothing mapped");
	WORKS("map from a part on", mmap(NULL, GIB, PROT_READ, MAP_SHARED, fd, HUGE));
	char *at = mmap(NULL, 2 * GIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	at[GIB - 1] = 'a';
	at[GIB] = 'b';
	RESULT("read", pread(fd, bytes, 2, GIB - 1));
	printf("read: %s\n", bytes);
	RESULT("write", pwrite(fd, bytes, 2, 0));
	RESULT("read a hole", pread(fd, bytes, 2, 0));
	fstat(fd, &status);
	printf("%ld blocks\n", (long)status.st_blocks);
	pools("two in a file");
	at[5] = 3;
	RESULT("punch a part", fallocate(fd, PUNCH, 0, HUGE));
	printf("a part punched: %d\n", at[5]);
	RESULT("remove a part", madvise(at, HUGE, MADV_REMOVE));
	RESULT("remove one", madvise(at, GIB, MADV_REMOVE));
	pools("one removed");
	printf("removed: %d\n", at[5]);
	RESULT("cut", ftruncate(fd, GIB));
	RESULT("behind the end", touch(at + GIB, 0));
	RESULT("allocate three", fallocate(fd, 0, 0, 3 * GIB));
	RESULT("allocate four", fallocate(fd, 0, 0, 4 * GIB));
	RESULT("data", lseek(fd, 5, SEEK_DATA));
	pools("allocated");
	munmap(at, 2 * GIB);
	close(fd);
	pools("closed");
	WORKS("of 2 MiB", fd = memfd_create("mib", MFD_HUGETLB | SHIFT_MIB));
	close(fd);
	WORKS("of 64 KiB", memfd_create("kib", MFD_HUGETLB | 16 << 26));
	WORKS("memory of 64 KiB", map_pool(HUGE, MAP_PRIVATE | 16 << 26));
}

static void segments(void)
{
	struct shmid_ds status;
	int id = shmget(IPC_PRIVATE, GIB + 5, IPC_CREAT | SHM_HUGETLB | SHIFT_GIB | 0600);

	printf("segment: %d\n", id >= 0);
	shmctl(id, IPC_STAT, &status);
	printf("%ld bytes\n", (long)status.shm_segsz);
	pools("a segment");
	char *at = shmat(id, NULL, 0);
	printf("aligned: %d\n", (unsigned long)at % GIB == 0);
	RESULT("store", touch(at + GIB, 1));
	WORKS("at a part", shmat(id, (void *)(32 * GIB + HUGE), 0));
	pools("one stored to");
	shmdt(at);
	shmctl(id, IPC_RMID, NULL);
	pools("no segment");
}

static void try_mount(const char *options)
{
	char what[80];

	snprintf(what, sizeof what, "mount %s", options);
	WORKS(what, mount("none", "/tmp/gib", "hugetlbfs", 0, options));
	umount("/tmp/gib");
}

static void mounts(void)
{
	struct statfs system;

	mkdir("/tmp/gib", 0700);
	try_mount("pagesize=1G");
	try_mount("pagesize=1024M");
	try_mount("pagesize=1048576K");
	try_mount("pagesize=4K");
	try_mount("pagesize=64K");
	try_mount("pagesize=512M");
	try_mount("pagesize=1G,size=2M");
	try_mount("pagesize=1G,min_size=2G");
	try_mount("pagesize=1G,min_size=9G");
	WORKS("mount", mount("none", "/tmp/gib", "hugetlbfs", 0, "pagesize=1G,size=2G,min_size=1G"));
	statfs("/tmp/gib", &system);
	printf("blocks of %ld: %ld, free %ld\n", (long)system.f_bsize, (long)system.f_blocks, (long)system.f_bfree);
	pools("mounted");
	int fd = open("/tmp/gib/file", O_CREAT | O_RDWR, 0600);
	RESULT("allocate three", fallocate(fd, 0, 0, 3 * GIB));
	RESULT("three", ftruncate(fd, 3 * GIB));
	WORKS("map three", mmap(NULL, 3 * GIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	char *at = mmap(NULL, 2 * GIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	RESULT("the second", touch(at + GIB, 1));
	statfs("/tmp/gib", &system);
	printf("blocks of %ld: %ld, free %ld\n", (long)system.f_bsize, (long)system.f_blocks, (long)system.f_bfree);
	pools("mapped");
	munmap(at, 2 * GIB);
	close(fd);
	unlink("/tmp/gib/file");
	WORKS("unmount", umount("/tmp/gib"));
	pools("unmounted");
}

static void parted(void)
{
	char *at = map_gib(GIB, MAP_PRIVATE);

	set(SYS "demote", "1");
	pools("one parted");
	char *small = map_pool(512 * HUGE, MAP_PRIVATE);
	if (small == MAP_FAILED)
		return;
	for (int page = 0; page < 512; page++)
		small[page * HUGE + 7] = page;
	long right = 0;
	for (int page = 0; page < 512; page++)
		right += small[page * HUGE + 7] == (char)page;
	printf("parts that are right: %ld\n", right);
	set(SYS_MIB "nr_hugepages", "0");
	pools("all parts in use");
	munmap(small, 512 * HUGE);
	pools("none in use");
	set(SYS_MIB "nr_hugepages", "0");
	RESULT("the promised one", touch(at, 1));
	set(SYS "demote", "5");
	pools("the rest parted");
	set(SYS "nr_hugepages", "0");
	pools("one is surplus");
	munmap(at, GIB);
	pools("it is free");
	set(SYS_MIB "nr_hugepages", "0");
	pools("nothing");
}

int main(void)
{
	catch_signals();
	knobs();
	private_memory();
	families();
	in_files();
	segments();
	mounts();
	parted();
	counters("in the end");
	return 0;
}
