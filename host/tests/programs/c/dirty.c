/* Stores to a mapping of a file while many pages of another are dirty. Arguments: the file with dirty pages, how many
 * MiB of it, the file that is mapped. Pages of a disk get dirty by writes, those of another file by stores. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define MIB ((size_t)1 << 20)

/* Stores a byte in each page of the first bytes of a file. */
static int store(int file, size_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	if (memory == MAP_FAILED)
		return perror("mmap"), 1;
	for (size_t at = 0; at < bytes; at += PAGE)
		memory[at] = at / PAGE + 1;
	return 0;
}

int main(int argc, char **argv)
{
	static char zeros[MIB];
	int dirty, mapped;

	if (argc != 4)
		return 2;
	dirty = open(argv[1], O_RDWR | O_CREAT, 0644);
	mapped = open(argv[3], O_RDWR | O_CREAT, 0644);
	if (dirty < 0 || mapped < 0)
		return perror("open"), 1;
	if (!ftruncate(dirty, atoi(argv[2]) * MIB)) {
		if (store(dirty, atoi(argv[2]) * MIB))
			return 1;
	} else {
		for (int at = 0; at < atoi(argv[2]); at++)
			if (write(dirty, zeros, MIB) != MIB)
				return perror("write"), 1;
	}
	/* Fails for a disk, which is long enough. */
	(void)!ftruncate(mapped, MIB);
	if (store(mapped, MIB))
		return 1;
	puts("stored");
	return 0;
}
