/* Processes take pages of both pools and ordinary memory, check what they wrote, fork, and give all back, while pages of
 * 1 GiB are made, parted and given back. Every byte must stay what its owner wrote. Arguments: TAKERS ROUNDS SEED. */
#include "pool.h"
#include <stdint.h>
#include <sys/wait.h>

#define GIB (1UL << 30)
#define SHIFT_GIB (30 << 26)
#define SYS "/sys/kernel/mm/hugepages/hugepages-1048576kB/"
#define PLACES 300

static uint64_t state;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* The words of a mapping that are written: some in each of its parts. */
static uint64_t *word(char *map, size_t bytes, int place)
{
	return (uint64_t *)(map + (bytes / PLACES * place & ~7UL));
}

static void fill(char *map, size_t bytes, uint64_t seed)
{
	for (int place = 0; place < PLACES; place++)
		*word(map, bytes, place) = seed + place;
}

static int check(char *map, size_t bytes, uint64_t seed)
{
	int wrong = 0;

	for (int place = 0; place < PLACES; place++)
		wrong |= *word(map, bytes, place) != seed + place;
	return wrong;
}

static int zero(char *map, size_t bytes)
{
	int wrong = 0;

	for (int place = 0; place < PLACES; place++)
		wrong |= *word(map, bytes, place) != 0;
	return wrong;
}

static int taker(int rounds)
{
	int wrong = 0, had = 0;

	/* On a busy machine one size or another may be had late. */
	for (int round = 0; round < rounds || had != 7 && round < 10 * rounds; round++) {
		int kind = next() % 3, shared = next() % 2;
		size_t bytes = kind == 0 ? GIB : kind == 1 ? (1 + next() % 40) * HUGE : (1 + next() % 64) << 20;
		int pool = kind == 0 ? MAP_HUGETLB | SHIFT_GIB : kind == 1 ? MAP_HUGETLB : 0;
		uint64_t seed = next();
		char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		                 MAP_ANONYMOUS | pool | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);

		if (map == MAP_FAILED)
			continue;
		had |= 1 << kind;
		wrong |= zero(map, bytes);
		fill(map, bytes, seed);
		if (next() % 3 == 0) {
			pid_t child = fork();
			int status;

			if (child == 0)
				_exit(check(map, bytes, seed));
			if (child > 0 && waitpid(child, &status, 0) == child)
				wrong |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
		}
		wrong |= check(map, bytes, seed);
		if (next() % 4 == 0)
			madvise(map, bytes, MADV_DONTNEED);
		munmap(map, bytes);
	}
	if (wrong)
		printf("WRONG\n");
	_exit(wrong ? 1 : had == 7 ? 0 : 2);
}

static void sizes(void)
{
	for (;;) {
		switch (next() % 4) {
		case 0:
		case 1:
			write_knob(SYS "nr_hugepages", next() % 4);
			break;
		case 2:
			write_knob(SYS "demote", 1);
			break;
		default:
			write_knob(POOL, next() % 600);
		}
	}
}

static void spawn(uint64_t seed, int number)
{
	state = (seed * 64 + number + 1) * 2654435769u;
	for (int step = 0; step < 8; step++)
		next();
}

int main(int argc, char **argv)
{
	int takers = atoi(argv[1]), rounds = atoi(argv[2]), status, bad = 0;
	uint64_t seed = atol(argv[3]);
	pid_t changing[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	long before = meminfo("MemFree");
	for (int number = 0; number < 2; number++)
		if ((changing[number] = fork()) == 0) {
			spawn(seed, 60 + number);
			sizes();
		}
	for (int number = 0; number < takers; number++)
		if (fork() == 0) {
			spawn(seed, number);
			taker(rounds);
		}
	int less = 0;
	for (int ended = 0; ended < takers; ended++) {
		wait(&status);
		bad |= !WIFEXITED(status) || WEXITSTATUS(status) == 1;
		less += WIFEXITED(status) && WEXITSTATUS(status) == 2;
	}
	for (int number = 0; number < 2; number++) {
		kill(changing[number], SIGKILL);
		waitpid(changing[number], &status, 0);
	}
	write_knob(SYS "nr_hugepages", 0);
	write_knob(POOL, 0);
	printf("%s, with pages of all sizes: %s\n", bad ? "WRONG" : "right", less < takers ? "yes" : "NO");
	counters("in the end");
	printf("Hugetlb %ld\n", meminfo("Hugetlb"));
	/* What is free in pieces is whole again: as many pages as before can be made. */
	long lost = before - meminfo("MemFree");
	printf("lost: %s\n", lost > 20480 ? "MUCH" : "little");
	if (lost > 20480)
		printf("%ld KiB\n", lost);
	return bad;
}
