/* Threads read a disk into scattered pages, past the cache: the device writes to the pages, wherever they are to move.
 * Each block says which it is. Arguments: disk, threads, rounds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS 256
#define STRIDE (4 * 4096)

static int disk, rounds;
static _Atomic long wrong;

static unsigned long word(long block, int at)
{
	return block * 1000003UL + at;
}

static void *reader(void *argument)
{
	long first = (long)argument * BLOCKS;
	char *memory = mmap(NULL, BLOCKS * STRIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		exit(1);
	madvise(memory, BLOCKS * STRIDE, MADV_NOHUGEPAGE);
	for (int round = -1; round < rounds; round++)
		for (int block = 0; block < BLOCKS; block++) {
			unsigned long *page = (unsigned long *)(memory + (block + round + 1) % BLOCKS * STRIDE);
			long offset = (first + block) * 4096;

			if (round < 0) {
				for (int at = 0; at < 512; at++)
					page[at] = word(first + block, at);
				if (pwrite(disk, page, 4096, offset) != 4096)
					exit(2);
				continue;
			}
			memset(page, round, 4096);
			/* So that there are always blocks in pieces. */
			memset((char *)page + 4096, 1, 4096);
			if (round % 2)
				madvise((char *)page + 4096, 4096, MADV_DONTNEED);
			if (pread(disk, page, 4096, offset) != 4096)
				exit(3);
			for (int at = 0; at < 512; at++)
				if (page[at] != word(first + block, at)) {
					wrong++;
					break;
				}
		}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[2]) : 4;
	pthread_t ids[16];

	rounds = argc > 3 ? atoi(argv[3]) : 20;
	disk = open(argc > 1 ? argv[1] : "/dev/vda", O_RDWR | O_DIRECT);
	if (disk < 0 || threads > 16) {
		perror("direct");
		return 1;
	}
	for (long number = 0; number < threads; number++)
		pthread_create(&ids[number], NULL, reader, (void *)number);
	for (int number = 0; number < threads; number++)
		pthread_join(ids[number], NULL);
	printf("wrong blocks: %ld\n", wrong);
	return wrong != 0;
}
