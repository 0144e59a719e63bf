/* What 2 MiB cost to touch or to read and to unmap, by pages and as huge pages; with `--icount` a nanosecond is an
   instruction. With `hole`, what becomes of memory whose huge pages were punched: whether it goes back to the host. */
#include "figures.h"

#define HUGE (2l << 20)

static void set(const char *value)
{
	int fd = MUST(open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_WRONLY));
	MUST(write(fd, value, strlen(value)));
	close(fd);
}

static void measure(const char *what, int kind, int advice, int store, long regions)
{
	char *all = MUST(mmap(0, (regions + 1) * HUGE, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0));
	volatile char *a = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE);
	MUST(madvise((char *)a, regions * HUGE, advice));
	double start = now();
	for (long at = 0; at < regions * HUGE; at += PAGE)
		if (store)
			a[at] = 1;
		else
			a[at];
	double touched = now();
	MUST(munmap(all, (regions + 1) * HUGE));
	double end = now();
	say("%s: %.1f us for 2 MiB, %.1f us to unmap them", what, (touched - start) * 1e6 / regions, (end - touched) * 1e6 / regions);
}

static void show(const char *when)
{
	say("%s: %ld MiB free, %ld MiB of them unreported, %ld MiB in huge pages, %ld pages moved", when,
	    number("/proc/meminfo", "MemFree:") / 1024, number("/proc/vmstat", "nr_unreported_free ") / 256,
	    number("/proc/meminfo", "ShmemHugePages:") / 1024, number("/proc/vmstat", "pgmigrate_success "));
}

static void hole(long regions)
{
	int fd = MUST(memfd_create("file", 0));
	MUST(ftruncate(fd, regions * HUGE));
	long *a = MUST(mmap(0, regions * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)), wrong = 0;
	for (long page = 0; page < regions * 512; page++)
		a[page * 512] = page + 1;
	show("filled");
	for (long region = 0; region < regions; region++)
		MUST(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, region * HUGE + 128 * PAGE, 384 * PAGE));
	show("punched");
	for (int i = 0; i < 4; i++) {
		sleep(5);
		show("5 s later");
	}
	for (long page = 0; page < regions * 512; page++)
		wrong += a[page * 512] != (page % 512 < 128 ? page + 1 : 0);
	HOLDS(wrong == 0);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		set("always");
		hole(160);
		return 0;
	}
	for (int i = 0; i < 2; i++) {
		set("never");
		measure("shared memory, pages", MAP_SHARED, MADV_NORMAL, 1, 128);
		set("always");
		measure("shared memory, huge pages", MAP_SHARED, MADV_NORMAL, 1, 128);
		measure("zeros, pages", MAP_PRIVATE, MADV_NOHUGEPAGE, 0, 64);
		measure("zeros, huge pages", MAP_PRIVATE, MADV_HUGEPAGE, 0, 64);
	}
	return 0;
}
