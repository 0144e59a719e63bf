/* Areas that grow downwards: what may be one, how far it grows, and that nothing is in two areas when
   a mapping is made where one grows to at that moment. Argument: rounds of that. */
#include "say.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>

#define MIB (1ul << 20)
#define TOP ((char *)0x110000000000ul)
#define BOTH (PROT_READ | PROT_WRITE)

static __thread sigjmp_buf refused;
static atomic_long wanted, done;
static atomic_int grew;

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(refused, 1);
}

static int store(char *at, char value)
{
	if (sigsetjmp(refused, 1))
		return 0;
	*(volatile char *)at = value;
	return 1;
}

static char *map_growing(void)
{
	return mmap(TOP, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
}

static void what_may_grow(void)
{
	int file = MUST(memfd_create("file", 0));
	MUST(ftruncate(file, 4 * PAGE));
	TRY((long)mmap(0, PAGE, BOTH, MAP_PRIVATE | MAP_GROWSDOWN, file, PAGE));
	TRY((long)mmap(0, PAGE, BOTH, MAP_SHARED | MAP_GROWSDOWN, file, PAGE));
	TRY((long)mmap(0, PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0));
	HOLDS(map_growing() == TOP);
	HOLDS(store(TOP, 1));
	HOLDS(store(TOP - 4 * MIB, 2));
	HOLDS(TOP[0] == 1 && TOP[-4 * (long)MIB] == 2 && TOP[-2 * (long)MIB] == 0);
	/* Beyond the limit of the stack, and close to something else. */
	HOLDS(!store(TOP - 9 * MIB, 3));
	HOLDS(mmap(TOP - 6 * MIB, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == TOP - 6 * MIB);
	HOLDS(!store(TOP - 6 * MIB + PAGE, 3));
	HOLDS(store(TOP - 5 * MIB + 2 * PAGE, 3));
	TRY(munmap(TOP - 8 * MIB, 9 * MIB));
}

static void *grow(void *unused)
{
	for (long round = 1;; round++) {
		while (atomic_load(&wanted) != round) {
			if (atomic_load(&wanted) < 0)
				return unused;
			sched_yield();
		}
		for (volatile unsigned i = 0; i < round * 2654435761u % 2500; i++)
			;
		atomic_store(&grew, store(TOP - 4 * MIB + 16, (char)round));
		atomic_store(&done, round);
	}
}

/* Reads /proc/self/maps; areas ascend and do not overlap. */
static int areas_are_apart(void)
{
	static char text[1 << 16];
	int file = MUST(open("/proc/self/maps", O_RDONLY)), length = 0, got;
	while ((got = read(file, text + length, sizeof text - 1 - length)) > 0)
		length += got;
	text[length] = 0;
	close(file);
	unsigned long last = 0, start, end;
	for (char *line = text; line && *line; line = strchr(line, '\n'), line += line != 0) {
		if (sscanf(line, "%lx-%lx", &start, &end) != 2)
			break;
		if (start < last || end <= start)
			return 0;
		last = end;
	}
	return 1;
}

static void growth_beside_mappings(long rounds)
{
	pthread_t thread;
	pthread_create(&thread, 0, grow, 0);
	long overlaps = 0, lost = 0;
	for (long round = 1; round <= rounds; round++) {
		map_growing();
		store(TOP, 1);
		atomic_store(&wanted, round);
		for (volatile unsigned i = 0; i < round * 40503u % 2500; i++)
			;
		int replace = round & 1 ? MAP_FIXED_NOREPLACE : MAP_FIXED;
		char *new = mmap(TOP - 6 * MIB, 4 * MIB, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | replace, -1, 0);
		/* What is stored now is in one area, and stays. */
		int kept = new != MAP_FAILED && store(new + 3 * MIB, 77);
		while (atomic_load(&done) != round)
			sched_yield();
		lost += kept && new[3 * MIB] != 77;
		overlaps += !areas_are_apart();
		munmap(TOP - 16 * MIB, 17 * MIB);
	}
	atomic_store(&wanted, -1);
	pthread_join(thread, 0);
	say("growth beside mappings: %ld overlaps, %ld lost", overlaps, lost);
}

int main(int count, char **words)
{
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER | SA_ONSTACK };
	sigaction(SIGSEGV, &action, 0);
	sigaction(SIGBUS, &action, 0);
	what_may_grow();
	growth_beside_mappings(count > 1 ? atol(words[1]) : 3000);
	return 0;
}
