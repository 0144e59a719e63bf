/* Processes take pages of the pool, fill them with patterns, check them, fork, and give them back, while the pool grows and
 * shrinks and memory is full. Every byte must stay what its owner wrote. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "account.h"

#define HUGE (2UL << 20)

static uint64_t state;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void write_knob(const char *path, long value)
{
	char text[32];
	int length = snprintf(text, sizeof text, "%ld", value);
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, length) != length)
		perror(path);
	close(fd);
}

static void fill(uint64_t *words, uint64_t seed)
{
	for (size_t at = 0; at < HUGE / 8; at += 64)
		words[at] = seed + at;
}

static int check(const uint64_t *words, uint64_t seed)
{
	for (size_t at = 0; at < HUGE / 8; at += 64)
		if (words[at] != seed + at)
			return 1;
	return 0;
}

/* Ordinary memory, so that descriptors of frames beside those of huge pages are in use. */
static int ordinary(size_t bytes)
{
	uint64_t seed = next(), *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int wrong = 0;

	if (words == MAP_FAILED)
		return 0;
	for (size_t at = 0; at < bytes / 8; at += 512)
		words[at] = seed ^ at;
	for (size_t at = 0; at < bytes / 8; at += 512)
		wrong |= words[at] != (seed ^ at);
	munmap(words, bytes);
	return wrong;
}

static int taker(int number, int rounds)
{
	int wrong = 0, had = 0;

	state = 88172645463325252ULL * (number + 1);
	/* On a busy machine the pool may have pages late. */
	for (int round = 0; round < rounds || had == 0 && round < 1000 * rounds; round++) {
		size_t pages = 1 + next() % 6;
		int shared = next() % 2;
		uint64_t seed = next();
		char *map = mmap(NULL, pages * HUGE, PROT_READ | PROT_WRITE,
				 MAP_ANONYMOUS | MAP_HUGETLB | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);

		wrong |= ordinary((1 + next() % 16) << 18);
		if (map == MAP_FAILED)
			continue;
		had++;
		for (size_t page = 0; page < pages; page++)
			fill((uint64_t *)(map + page * HUGE), seed + page);
		if (next() % 3 == 0) {
			pid_t child = fork();
			int status;

			if (child == 0) {
				int bad = 0;

				for (size_t page = 0; page < pages; page++)
					bad |= check((uint64_t *)(map + page * HUGE), seed + page);
				_exit(bad);
			}
			if (child > 0 && waitpid(child, &status, 0) == child)
				wrong |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
		}
		if (next() % 4 == 0)
			madvise(map, HUGE, MADV_DONTNEED);
		else
			wrong |= check((uint64_t *)map, seed);
		for (size_t page = 1; page < pages; page++)
			wrong |= check((uint64_t *)(map + page * HUGE), seed + page);
		munmap(map, pages * HUGE);
	}
	printf("taker %d: %s\n", number, wrong ? "WRONG" : had ? "right" : "never had one");
	return wrong;
}

static void resizer(long most)
{
	state = 1234567;
	for (;;)
		write_knob("/proc/sys/vm/nr_hugepages", next() % (most + 1));
}

static long meminfo(const char *name)
{
	char line[128];
	long value = -1;
	FILE *file = fopen("/proc/meminfo", "r");

	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
			sscanf(line + strlen(name) + 1, "%ld", &value);
	if (file)
		fclose(file);
	return value;
}

int main(int argc, char **argv)
{
	int takers = argc > 1 ? atoi(argv[1]) : 4, rounds = argc > 2 ? atoi(argv[2]) : 40;
	long most = argc > 3 ? atol(argv[3]) : 64;
	int status, bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	struct account before = take_account();
	pid_t sizes = fork();
	if (sizes == 0)
		resizer(most);
	for (int number = 0; number < takers; number++)
		if (fork() == 0)
			_exit(taker(number, rounds));
	for (int ended = 0; ended < takers; ended++) {
		wait(&status);
		bad |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	}
	kill(sizes, SIGKILL);
	waitpid(sizes, &status, 0);
	write_knob("/proc/sys/vm/nr_hugepages", 0);
	printf("in the end: total %ld, free %ld, reserved %ld, surplus %ld\n", meminfo("HugePages_Total"),
	       meminfo("HugePages_Free"), meminfo("HugePages_Rsvd"), meminfo("HugePages_Surp"));
	return bad | settle(&before);
}
