/* Files of huge pages: a mounted hugetlbfs, memory files, System V segments. Runs as the only user of a guest's pool. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2UL << 20)
#define POOL "/proc/sys/vm/nr_hugepages"

static sigjmp_buf back;
static volatile int caught;

static void on_signal(int number)
{
	caught = number;
	siglongjmp(back, 1);
}

static const char *error(void)
{
	return errno ? strerrorname_np(errno) : "ok";
}

static void counters(const char *when)
{
	static const char *const names[] = {"HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp"};
	char line[200];
	FILE *file = fopen("/proc/meminfo", "r");

	printf("%s:", when);
	while (file && fgets(line, sizeof line, file))
		for (int index = 0; index < 4; index++)
			if (!strncmp(line, names[index], strlen(names[index])))
				printf(" %s %ld", names[index] + 10, strtol(strchr(line, ':') + 1, NULL, 10));
	if (file)
		fclose(file);
	printf("\n");
	fflush(stdout);
}

static void write_knob(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);

	errno = 0;
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		printf("%s to %s: %s\n", value, path, error());
	close(fd);
}

static int touch(volatile char *at, int store)
{
	if (sigsetjmp(back, 1))
		return caught;
	if (store)
		*at = 1;
	else
		(void)*at;
	return 0;
}

static void try_mount(const char *options)
{
	errno = 0;
	mount("none", "/huge", "hugetlbfs", 0, options);
	printf("mount -o %s: %s\n", options, error());
	if (!errno) {
		struct statfs fs;

		counters("mounted");
		statfs("/huge", &fs);
		printf("magic %lx, block %ld, blocks %ld, free %ld, files %ld\n", (long)fs.f_type, (long)fs.f_bsize,
		       (long)fs.f_blocks, (long)fs.f_bfree, (long)fs.f_files);
		umount("/huge");
	}
}

static void files(void)
{
	struct stat status;
	char byte = 0;

	errno = 0;
	mount("none", "/huge", "hugetlbfs", 0, "size=8M,mode=0777");
	printf("mounted: %s\n", error());
	int fd = open("/huge/file", O_CREAT | O_RDWR, 0600);
	printf("made: %s\n", error());
	errno = 0, write(fd, "x", 1);
	printf("write: %s\n", error());
	errno = 0, ftruncate(fd, 4096);
	printf("cut to 4096: %s\n", error());
	errno = 0, ftruncate(fd, 3 * HUGE);
	printf("cut to three: %s\n", error());
	fstat(fd, &status);
	printf("size %ld, blocks %ld, block size %ld\n", (long)status.st_size, (long)status.st_blocks,
	       (long)status.st_blksize);
	counters("cut");
	errno = 0;
	char *at = mmap(NULL, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	printf("mapped: %s\n", error());
	counters("mapped");
	at[5] = 'a';
	at[2 * HUGE] = 'b';
	counters("two stored");
	printf("read: %ld %c\n", (long)pread(fd, &byte, 1, 5), byte);
	byte = 'x';
	printf("read a hole: %ld %d\n", (long)pread(fd, &byte, 1, HUGE), byte);
	fstat(fd, &status);
	printf("size %ld, blocks %ld\n", (long)status.st_size, (long)status.st_blocks);
	errno = 0, mmap(NULL, HUGE, PROT_READ, MAP_SHARED, fd, 4096);
	printf("odd offset: %s\n", error());

	char *own = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	counters("mapped privately");
	printf("the private one sees %c", own[5]);
	own[5] = 'c';
	printf(", stores %c, the file has %c\n", own[5], at[5]);
	counters("copied");
	munmap(own, HUGE);

	errno = 0;
	char *more = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 3 * HUGE);
	printf("beyond the file system's size: %s\n", error());
	if (more != MAP_FAILED)
		munmap(more, 2 * HUGE);
	errno = 0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE);
	printf("a hole: %s, then %d\n", error(), at[5]);
	counters("punched");
	errno = 0, fallocate(fd, 0, HUGE, HUGE);
	printf("allocate: %s\n", error());
	counters("allocated");
	errno = 0, madvise(at + 2 * HUGE, HUGE, MADV_REMOVE);
	printf("remove: %s, then %d\n", error(), at[2 * HUGE]);
	errno = 0, ftruncate(fd, HUGE);
	printf("cut: %s, a load behind gets %d\n", error(), touch(at + HUGE, 0));
	counters("cut");
	errno = 0, umount("/huge");
	printf("unmount in use: %s\n", error());
	munmap(at, 3 * HUGE);
	close(fd);
	counters("closed");
	unlink("/huge/file");
	counters("unlinked");
	mkdir("/huge/directory", 0700);
	symlink("directory", "/huge/link");
	printf("a link: %d\n", access("/huge/link", F_OK));
	errno = 0, umount("/huge");
	printf("unmount: %s\n", error());
}

static void memory_file(void)
{
	errno = 0;
	int fd = memfd_create("huge", MFD_HUGETLB);
	printf("memory file: %s\n", error());
	errno = 0, memfd_create("huge", MFD_HUGETLB | 21U << 26);
	printf("2 MiB: %s\n", error());
	errno = 0, memfd_create("huge", MFD_HUGETLB | 22U << 26);
	printf("4 MiB: %s\n", error());
	errno = 0, memfd_create("huge", 21U << 26);
	printf("a size without huge pages: %s\n", error());
	ftruncate(fd, 2 * HUGE);
	char *at = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	counters("mapped");
	at[0] = 1;
	char *again = mmap(NULL, 2 * HUGE, PROT_READ, MAP_SHARED | MAP_HUGETLB, fd, 0);
	printf("seen twice: %d\n", again[0]);
	munmap(again, 2 * HUGE);
	munmap(at, 2 * HUGE);
	counters("unmapped");
	close(fd);
	counters("closed");
}

static void segment(void)
{
	int status;

	errno = 0;
	int id = shmget(IPC_PRIVATE, 3 * HUGE, IPC_CREAT | SHM_HUGETLB | 0600);
	printf("segment: %s\n", error());
	counters("made");
	char *at = shmat(id, NULL, 0);
	printf("attached: %s, aligned: %d\n", error(), (unsigned long)at % HUGE == 0);
	at[HUGE] = 3;
	pid_t child = fork();
	if (child == 0) {
		at[0] = at[HUGE] + 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("the child stored %d\n", at[0]);
	counters("two stored");
	shmctl(id, IPC_RMID, NULL);
	counters("removed");
	shmdt(at);
	counters("detached");
	errno = 0, shmget(IPC_PRIVATE, 100 * HUGE, IPC_CREAT | SHM_HUGETLB | 0600);
	printf("too large: %s\n", error());
}

int main(void)
{
	signal(SIGBUS, on_signal);
	signal(SIGSEGV, on_signal);
	mkdir("/huge", 0700);
	write_knob(POOL, "8");
	try_mount("");
	try_mount("size=8M,nr_inodes=10");
	try_mount("size=50%,min_size=4M");
	try_mount("pagesize=2M,mode=0700,uid=1,gid=2");
	try_mount("pagesize=3M");
	try_mount("min_size=100M");
	try_mount("nonsense");
	counters("nothing mounted");
	files();
	counters("after the files");
	memory_file();
	segment();
	write_knob(POOL, "0");
	counters("in the end");
	return 0;
}
