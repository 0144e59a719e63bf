/* Gives a pool of huge pages back while memory is full to the last frame, then has some again: every fourth page stays in use,
 * in the blocks that came from the pool, too. Says what became of it: `hugetlb_full [FRAMES]`, which stay free. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "account.h"

static long number_in(const char *path, const char *name)
{
	char line[128];
	long value = -1;
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)) && (line[strlen(name)] == ':' || line[strlen(name)] == ' '))
			value = strtol(line + strlen(name) + 1, NULL, 10);
	if (file)
		fclose(file);
	return value;
}

static void resize(const char *pages)
{
	int fd = open("/proc/sys/vm/nr_hugepages", O_WRONLY);

	if (fd < 0 || write(fd, pages, strlen(pages)) < 0)
		perror("nr_hugepages");
	close(fd);
}

#define PAGES (256UL << 20 >> 12)

/* A frame at a time, until there are hardly any left: from which page on there is nothing. */
static size_t fill(char *at, size_t page, long kept)
{
	for (; page < PAGES; page++) {
		*(size_t *)(at + page * 4096) = page;
		if (number_in("/proc/vmstat", "nr_free_pages") < kept)
			break;
	}
	return page;
}

int main(int argc, char **argv)
{
	int ready[2], go[2];
	char byte;

	if (pipe(ready) || pipe(go))
		return 1;
	struct account account = take_account();
	resize("64");
	printf("pool: %ld\n", number_in("/proc/meminfo", "HugePages_Total"));
	long before = number_in("/proc/meminfo", "MemFree");
	/* What the kernel keeps for itself, in frames, and a few more. The CPUs' caches have others, which no figure shows. */
	char text[32] = "";
	int knob = open("/proc/sys/vm/min_free_kbytes", O_RDONLY);
	read(knob, text, sizeof text - 1);
	long kept = atol(text) / 4 + (argc > 1 ? atol(argv[1]) : 160);
	pid_t hog = fork();
	if (hog == 0) {
		char *at = mmap(NULL, PAGES << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		int wrong = 0;

		madvise(at, PAGES << 12, MADV_NOHUGEPAGE);
		size_t filled = fill(at, 0, kept);
		write(ready[1], "", 1);
		read(go[0], &byte, 1);
		filled = fill(at, filled, kept);
		for (size_t page = 0; page < filled; page++)
			if (page % 4)
				madvise(at + page * 4096, 4096, MADV_DONTNEED);
		write(ready[1], "", 1);
		read(go[0], &byte, 1);
		for (size_t page = 0; page < filled; page += 4)
			wrong += *(size_t *)(at + page * 4096) != page;
		_exit(wrong != 0);
	}
	/* Without the writers of the child, its end would be seen. */
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		printf("the hog was ended\n");
	resize("0");
	long carried = number_in("/proc/vmstat", "htlb_vmemmap_carried");
	printf("pool: %ld, carried: %s\n", number_in("/proc/meminfo", "HugePages_Total"), carried > 0 ? "some" : "none");
	write(go[1], "", 1);
	if (read(ready[0], &byte, 1) != 1)
		printf("the hog was ended\n");
	/* No program asks for it: what is in the blocks moves, and they become whole. */
	for (int tries = 0; tries < 6000 && number_in("/proc/vmstat", "htlb_vmemmap_carried") > 0; tries++)
		usleep(50000);
	printf("carried: %ld\n", number_in("/proc/vmstat", "htlb_vmemmap_carried"));
	int status;
	write(go[1], "", 1);
	waitpid(hog, &status, 0);
	printf("what stayed: %s\n", status ? "WRONG" : "right");
	long after = number_in("/proc/meminfo", "MemFree");
	/* What is just being reported to the host comes back a moment later. */
	for (int tries = 0; tries < 6000 && after - before <= 125 << 10; tries++) {
		usleep(50000);
		after = number_in("/proc/meminfo", "MemFree");
	}
	printf("back: %s\n", after - before > 125 << 10 ? "all" : "not all");
	if (after - before <= 125 << 10)
		printf("%ld KiB of %d\n", after - before, 128 << 10);
	resize("64");
	printf("pool: %ld\n", number_in("/proc/meminfo", "HugePages_Total"));
	resize("0");
	return settle(&account);
}
