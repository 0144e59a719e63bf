/* khugepaged joins 128 MiB of pages, between which pages of another area were touched. What the host has memory for is looked at
   from there. */
#include "say.h"

#define BYTES (128l << 20)
#define HUGE (2l << 20)

static long joined(void)
{
	char text[8192];
	int fd = MUST(open("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed", O_RDONLY));
	ssize_t bytes = MUST(read(fd, text, sizeof text - 1));
	close(fd);
	text[bytes] = 0;
	return atol(text);
}

int main(void)
{
	char *all = MUST(mmap(0, BYTES + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *between = MUST(mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *memory = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE);
	MUST(madvise(all, BYTES + HUGE, MADV_NOHUGEPAGE));
	MUST(madvise(between, HUGE, MADV_NOHUGEPAGE));
	for (long at = 0; at < BYTES; at += PAGE) {
		memory[at] = 1;
		if (at % (1 << 20) == 0)
			between[at >> 20 << 12] = 1;
	}
	MUST(madvise(memory, BYTES, MADV_HUGEPAGE));
	int fd = MUST(open("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", O_WRONLY));
	MUST(write(fd, "10", 2));
	close(fd);
	double end = now() + 300;
	while (joined() < BYTES / HUGE && now() < end)
		sleep_ms(10);
	HOLDS(joined() == BYTES / HUGE);
	return joined() != BYTES / HUGE;
}
