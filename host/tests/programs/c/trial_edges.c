/* Several huge pages that were not requested, of which ranges are changed that begin and end within
   one: each call ends, and changes that range alone. Says the same whatever pages a kernel uses. */
#include "say.h"

#define HUGE (2l << 20)
#define COUNT 6

int main(void)
{
	char *all = MUST(mmap(0, (COUNT + 1) * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *at[COUNT];
	for (int i = 0; i < COUNT; i++) {
		at[i] = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE) + i * HUGE;
		for (int page = 0; page < 40; page++)
			at[i][page * PAGE + 5] = i + page + 1;
	}
	say("a page within the second is made read-only");
	MUST(mprotect(at[1] + 7 * PAGE, PAGE, PROT_READ));
	say("what begins in the second and ends in the third goes");
	MUST(munmap(at[1] + 20 * PAGE, HUGE));
	say("a page within the fourth is dropped");
	MUST(madvise(at[3] + 3 * PAGE, PAGE, MADV_DONTNEED));
	say("the end of the fifth moves");
	char *moved = MUST(mremap(at[4] + 10 * PAGE, 9 * PAGE, 30 * PAGE, MREMAP_MAYMOVE));
	say("a page within the last is read by a call");
	int pipe_ends[2];
	MUST(pipe(pipe_ends));
	MUST(write(pipe_ends[1], at[5] + PAGE, PAGE));
	MUST(read(pipe_ends[0], at[5] + 39 * PAGE, PAGE));
	int wrong = 0;
	for (int i = 0; i < COUNT; i++)
		for (int page = 0; page < 40; page++) {
			int gone = (i == 1 && page >= 20) || (i == 2 && page < 20) || (i == 4 && page >= 10 && page < 19);
			int zero = i == 3 && page == 3;
			int expected = zero ? 0 : i == 5 && page == 39 ? 5 + 2 : i + page + 1;
			if (!gone)
				wrong += at[i][page * PAGE + 5] != expected;
		}
	for (int page = 0; page < 30; page++)
		wrong += moved[page * PAGE + 5] != (page < 9 ? 4 + page + 10 + 1 : 0);
	printf("%d pages show something else\n", wrong);
	return 0;
}
