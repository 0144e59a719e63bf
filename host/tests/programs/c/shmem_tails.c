/* Small files that took 2 MiB each give back what is behind their ends when memory is short, and keep their bytes. */
#include "figures.h"
#include <sys/mount.h>

#define HUGE (2l << 20)

static int open_file(long i)
{
	char name[64];
	snprintf(name, sizeof name, "/mnt/file%ld", i);
	return MUST(open(name, O_RDWR | O_CREAT, 0600));
}

static long held(long files)
{
	long blocks = 0;
	for (long i = 0; i < files; i++) {
		struct stat s;
		int fd = open_file(i);
		MUST(fstat(fd, &s));
		blocks += s.st_blocks;
		close(fd);
	}
	return blocks * 512;
}

static long wrong(long files)
{
	static char buffer[3 * PAGE];
	long count = 0;
	for (long i = 0; i < files; i++) {
		int fd = open_file(i);
		long bytes = 1000 + i % 3 * PAGE;
		count += pread(fd, buffer, sizeof buffer, 0) != bytes;
		for (long at = 0; at < bytes; at++)
			count += buffer[at] != (char)(i + at % 100 + 1);
		/* What comes behind the end is zero, wherever it was. */
		MUST(ftruncate(fd, 3 * HUGE));
		for (int look = 0; look < 4; look++) {
			long at = bytes + look * 700001;
			count += pread(fd, buffer, PAGE, at) != PAGE;
			for (int byte = 0; byte < PAGE; byte++)
				count += buffer[byte] != 0;
		}
		MUST(ftruncate(fd, bytes));
		close(fd);
	}
	return count;
}

int main(void)
{
	static char buffer[3 * PAGE];
	long memory = number("/proc/meminfo", "MemTotal:") << 10, files = memory / 100 * 60 / HUGE;
	mkdir("/mnt", 0755);
	MUST(mount("none", "/mnt", "tmpfs", 0, "size=90%,huge=always"));
	for (long i = 0; i < files; i++) {
		int fd = open_file(i);
		long bytes = 1000 + i % 3 * PAGE;
		for (long at = 0; at < bytes; at++)
			buffer[at] = i + at % 100 + 1;
		MUST(write(fd, buffer, bytes));
		close(fd);
	}
	long before = held(files);
	HOLDS(before > files * HUGE / 2);
	/* More than is left beside them. */
	long bytes = memory / 100 * 65;
	char *a = MUST(mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	for (long at = 0; at < bytes; at += PAGE)
		*(long *)(a + at) = at + 1;
	long lost = 0;
	for (long at = 0; at < bytes; at += PAGE)
		lost += *(long *)(a + at) != at + 1;
	HOLDS(lost == 0);
	HOLDS(held(files) < before);
	HOLDS(wrong(files) == 0);
	MUST(munmap(a, bytes));
	MUST(umount("/mnt"));
	HOLDS(number("/proc/meminfo", "ShmemHugePages:") == 0);
	/* A file system that is full of such ends is not full. */
	MUST(mount("none", "/mnt", "tmpfs", 0, "size=21m,huge=always"));
	for (files = 0; files < 1000; files++) {
		int fd = open_file(files);
		long bytes = 1000 + files % 3 * PAGE;
		for (long at = 0; at < bytes; at++)
			buffer[at] = files + at % 100 + 1;
		MUST(write(fd, buffer, bytes));
		close(fd);
	}
	HOLDS(held(files) <= 21l << 20);
	MUST(umount("/mnt"));
	return 0;
}
