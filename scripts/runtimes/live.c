/* 300 MiB in pieces of 16 bytes to 4 KiB; all of them are freed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST (300u << 20)

int main(void)
{
	static char *pieces[1 << 20];
	size_t count = 0, bytes = 0;
	unsigned long state = 1;
	while (bytes < MOST && count < sizeof pieces / sizeof *pieces) {
		state = state * 6364136223846793005 + 1442695040888963407;
		size_t size = 16 + (state >> 33) % 4080;
		pieces[count] = malloc(size);
		memset(pieces[count++], 1, size);
		bytes += size;
	}
	for (size_t i = 0; i < count; i++)
		free(pieces[i]);
	puts("freed");
	fflush(stdout);
	sleep(10);
	return 0;
}
