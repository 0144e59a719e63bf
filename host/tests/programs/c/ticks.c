/* How long some work takes by the guest's own clock: under -icount, its number of instructions. */
#include "say.h"

int main(void)
{
	struct timespec a, b;
	for (int round = 0; round < 5; round++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		char *p = mmap(NULL, 256 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int i = 0; i < 256; i++)
			p[i * PAGE] = 1;
		munmap(p, 256 * PAGE);
		for (volatile int i = 0; i < 100000; i++)
			;
		clock_gettime(CLOCK_MONOTONIC, &b);
		say("%ld ns", (b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec);
	}
	return 0;
}
