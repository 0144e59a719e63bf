/* The corners of the pool of huge pages: odd lengths, seals, promises that move, limits of file systems. What Linux does
 * is right. Runs as the only user of a guest's pool. */
#include "pool.h"
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 16
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

static void seals(void)
{
	int fd = memfd_create("sealed", MFD_HUGETLB | MFD_ALLOW_SEALING);

	RESULT("no seals", fcntl(fd, F_GET_SEALS));
	RESULT("four pages", ftruncate(fd, 4 * HUGE));
	char *at = mmap(NULL, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	at[0] = 1;
	RESULT("against stores, mapped", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	RESULT("against cuts", fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	RESULT("cut", ftruncate(fd, 3 * HUGE));
	RESULT("grow", ftruncate(fd, 5 * HUGE));
	RESULT("against growth", fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
	RESULT("grow", ftruncate(fd, 6 * HUGE));
	RESULT("the same", ftruncate(fd, 5 * HUGE));
	RESULT("allocate beyond", fallocate(fd, FALLOC_FL_KEEP_SIZE, 5 * HUGE, HUGE));
	RESULT("allocate within", fallocate(fd, 0, 2 * HUGE, HUGE));
	RESULT("punch", fallocate(fd, PUNCH, 0, HUGE));
	RESULT("against new stores", fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	RESULT("remove", madvise(at, HUGE, MADV_REMOVE));
	RESULT("the old mapping stores", touch(at, 1));
	munmap(at, 4 * HUGE);
	WORKS("map to store", mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	at = mmap(NULL, HUGE, PROT_READ, MAP_SHARED, fd, 0);
	RESULT("let it store", mprotect(at, HUGE, PROT_READ | PROT_WRITE));
	munmap(at, HUGE);
	RESULT("punch", fallocate(fd, PUNCH, 0, HUGE));
	RESULT("against stores", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL));
	RESULT("allocate", fallocate(fd, 0, 0, HUGE));
	RESULT("another seal", fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
	RESULT("all seals", fcntl(fd, F_GET_SEALS));
	counters("sealed");
	close(fd);
	fd = memfd_create("not to be sealed", MFD_HUGETLB);
	RESULT("its seals", fcntl(fd, F_GET_SEALS));
	RESULT("add one", fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
	close(fd);
}

static void sizes(const char *when, int fd)
{
	struct stat status;

	fstat(fd, &status);
	printf("%s: %ld bytes, %ld blocks\n", when, (long)status.st_size, (long)status.st_blocks);
}

static void files(void)
{
	struct rlimit limit = {HUGE, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
	int fd = memfd_create("file", MFD_HUGETLB);
	char bytes[8];

	ftruncate(fd, 2 * HUGE);
	RESULT("data", lseek(fd, 5, SEEK_DATA));
	RESULT("hole", lseek(fd, 5, SEEK_HOLE));
	RESULT("data behind the end", lseek(fd, 2 * HUGE, SEEK_DATA));
	RESULT("read at the end", pread(fd, bytes, 8, 2 * HUGE - 3));
	RESULT("allocate behind the end", fallocate(fd, FALLOC_FL_KEEP_SIZE, 3 * HUGE, HUGE));
	sizes("allocated", fd);
	RESULT("the same size", ftruncate(fd, 2 * HUGE));
	sizes("cut", fd);
	RESULT("allocate behind the end", fallocate(fd, FALLOC_FL_KEEP_SIZE, 3 * HUGE, HUGE));
	RESULT("punch all", fallocate(fd, PUNCH, 0, 0x7ffffffffffff000));
	sizes("punched", fd);
	RESULT("allocate too much", fallocate(fd, 0, 0, 20 * HUGE));
	sizes("full", fd);
	counters("full");
	RESULT("cut it", ftruncate(fd, 0));
	counters("cut");
	setrlimit(RLIMIT_FSIZE, &limit);
	signal(SIGXFSZ, SIG_IGN);
	RESULT("up to the limit", ftruncate(fd, HUGE));
	RESULT("beyond the limit", ftruncate(fd, 2 * HUGE));
	RESULT("allocate beyond the limit", fallocate(fd, FALLOC_FL_KEEP_SIZE, HUGE, HUGE));
	setrlimit(RLIMIT_FSIZE, &none);
	/* A promise outlives the hole that is punched where nothing was. */
	ftruncate(fd, 4 * HUGE);
	char *at = mmap(NULL, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	at[0] = 1;
	counters("one of four");
	fallocate(fd, PUNCH, 0, 2 * HUGE);
	counters("two punched");
	munmap(at, 4 * HUGE);
	close(fd);
	counters("closed");
}

static void mappings(void)
{
	char *at = map_pool(8 * HUGE, MAP_PRIVATE);

	memset(at, 1, 8 * HUGE);
	counters("all taken");
	WORKS("all in the place of all",
	      mmap(at, 8 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED, -1, 0));
	counters("promised again");
	WORKS("a part is replaced by 4 KiB",
	      mmap(at + HUGE, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	munmap(at, 8 * HUGE);
	WORKS("the largest length", mmap(NULL, -1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0));
	WORKS("one less", mmap(NULL, -2 * HUGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0));
	int fd = open("/dev/zero", O_RDWR);
	WORKS("/dev/zero", mmap(NULL, HUGE, PROT_READ, MAP_PRIVATE | MAP_HUGETLB, fd, 0));
	close(fd);

	at = map_pool(4 * HUGE, MAP_PRIVATE);
	char *room = mmap(NULL, 8 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *to = (char *)(((unsigned long)room + HUGE - 1) & ~(HUGE - 1));
	at[HUGE] = 5;
	counters("one of four");
	RESULT("moved", mremap(at, 4 * HUGE, 4 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	counters("moved");
	printf("it holds %d\n", to[HUGE]);
	counters("still promised");
	RESULT("odd lengths", mremap(to, 4 * HUGE - 5000, 3 * HUGE - 4096, 0) == to);
	counters("three are left");
	RESULT("the fourth", touch(to + 3 * HUGE, 0));
	WORKS("kept where it was", mremap(to, HUGE, HUGE, MREMAP_MAYMOVE | 4));
	WORKS("an odd place", mremap(to + 4096, HUGE, HUGE, 0));
	munmap(to, 3 * HUGE);
	counters("unmapped");
}

static void advice(void)
{
	static const int kinds[] = {MADV_COLD, MADV_PAGEOUT, MADV_FREE, MADV_WIPEONFORK, MADV_DONTFORK, MADV_DOFORK};
	char *at = map_pool(3 * HUGE, MAP_PRIVATE);
	char line[64];

	for (unsigned index = 0; index < sizeof kinds / sizeof *kinds; index++) {
		printf("advice %d: ", kinds[index]);
		RESULT("of a part", madvise(at, 4096, kinds[index]));
	}
	RESULT("forget a page and a part", (at[0] = at[HUGE] = 1, madvise(at, HUGE + 4096, MADV_DONTNEED)));
	counters("one is left");
	RESULT("forget a part", madvise(at + HUGE, 4096, MADV_DONTNEED_LOCKED));
	RESULT("forget from a part on", madvise(at + 4096, HUGE, MADV_DONTNEED));
	RESULT("lock a part", mlock(at + 4096, 4096));
	counters("locked");
	RESULT("forget what is locked", madvise(at, HUGE, MADV_DONTNEED));
	RESULT("populate a part", madvise(at + 2 * HUGE + 4096, 4096, MADV_POPULATE_WRITE));
	counters("populated");
	RESULT("unlock", munlock(at, HUGE));
	FILE *file = fopen("/proc/self/status", "r");
	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, "HugetlbPages", 12) || !strncmp(line, "VmLck", 5))
			printf("%s", line);
	fclose(file);
	munmap(at, 3 * HUGE);
}

static void try_mount(const char *options)
{
	char line[256];
	struct statfs fs;
	struct stat status;

	errno = 0;
	if (mount("none", "/edge", "hugetlbfs", 0, options)) {
		printf("%s: %s\n", options, strerrorname_np(errno));
		return;
	}
	statfs("/edge", &fs);
	stat("/edge", &status);
	printf("%s: %ld blocks, %ld free, %ld files, %ld free, mode %o, %ld bytes, %ld promised\n", options, (long)fs.f_blocks,
	       (long)fs.f_bfree, (long)fs.f_files, (long)fs.f_ffree, status.st_mode, (long)status.st_size,
	       meminfo("HugePages_Rsvd"));
	FILE *file = fopen("/proc/mounts", "r");
	while (file && fgets(line, sizeof line, file))
		if (strstr(line, " /edge "))
			printf("  %s", line);
	fclose(file);
	umount("/edge");
}

static void file_systems(void)
{
	static const char *const options[] = {
		"", "size=5M", "size=0", "size=33%", "size=4MB", "size=-1", "min_size=4M", "min_size=1%,size=200%",
		"min_size=50%,size=40%", "nr_inodes=0", "nr_inodes=1", "nr_inodes=1k,uid=010,gid=5,mode=4711,size=2M",
		"pagesize=2048K", "pagesize=4K", "ro", "mode=8", "unknown",
	};

	mkdir("/edge", 0700);
	for (unsigned index = 0; index < sizeof options / sizeof *options; index++)
		try_mount(options[index]);
	RESULT("mount", mount("none", "/edge", "hugetlbfs", 0, "size=6M,min_size=4M"));
	int fd = open("/edge/file", O_CREAT | O_RDWR, 0600);
	WORKS("more than it may have, privately", mmap(NULL, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
	char *at = mmap(NULL, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	counters("three privately");
	RESULT("allocate", fallocate(fd, 0, 0, HUGE));
	munmap(at, 3 * HUGE);
	counters("unmapped");
	RESULT("allocate", fallocate(fd, 0, 0, HUGE));
	counters("allocated");
	/* What the file system was promised leaves with the pool, and comes back. */
	write_knob(POOL, 0);
	RESULT("punch", fallocate(fd, PUNCH, 0, HUGE));
	RESULT("allocate two", fallocate(fd, 0, 0, 2 * HUGE));
	write_knob(POOL, 8);
	RESULT("allocate two", fallocate(fd, 0, 0, 2 * HUGE));
	sizes("two", fd);
	close(fd);
	unlink("/edge/file");
	RESULT("unmount", umount("/edge"));
	counters("unmounted");
}

static void segments(void)
{
	struct shmid_ds status;
	struct shm_info info;
	int id = shmget(IPC_PRIVATE, 9 * HUGE, IPC_CREAT | SHM_HUGETLB | SHM_NORESERVE | 0600);
	char *at = shmat(id, NULL, 0);

	WORKS("more than there are, unpromised", at);
	for (int page = 6; page < 9; page++)
		RESULT("store", touch(at + page * HUGE, 1));
	shmctl(0, SHM_INFO, (struct shmid_ds *)&info);
	printf("%lu pages, %lu resident\n", info.shm_tot, info.shm_rss);
	RESULT("lock", shmctl(id, SHM_LOCK, NULL));
	shmctl(id, IPC_STAT, &status);
	printf("mode %o\n", status.shm_perm.mode);
	shmctl(id, IPC_RMID, NULL);
	shmdt(at);
	counters("detached");
}

/* Of what cannot be had as a whole nothing stays. */
static void more_than_memory(void)
{
	/* Its length alone makes no work. */
	WORKS("16 TiB", map_pool(1UL << 44, MAP_SHARED));
	counters("16 TiB");
	write_knob(OVERCOMMIT, 100000);
	WORKS("private", map_pool(2000 * HUGE, MAP_PRIVATE));
	counters("private");
	WORKS("shared", map_pool(2000 * HUGE, MAP_SHARED));
	counters("shared");
	WORKS("segment", shmget(IPC_PRIVATE, 2000 * HUGE, IPC_CREAT | SHM_HUGETLB | 0600));
	counters("segment");
	RESULT("file system", mount("none", "/edge", "hugetlbfs", 0, "min_size=4000M"));
	counters("file system");
	char *at = map_pool(10 * HUGE, MAP_PRIVATE);
	counters("ten");
	write_knob(OVERCOMMIT, 0);
	memset(at, 1, 10 * HUGE);
	munmap(at, HUGE);
	counters("nine");
	munmap(at + HUGE, 9 * HUGE);
	counters("none");
}

int main(void)
{
	catch_signals();
	write_knob(POOL, 8);
	seals();
	counters("after the seals");
	files();
	mappings();
	advice();
	file_systems();
	segments();
	more_than_memory();
	write_knob(POOL, 0);
	counters("in the end");
	return 0;
}
