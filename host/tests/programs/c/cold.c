/* Pages of a host file: how they are counted, and that they go when no program uses them. Argument: a file of 64 MiB or
 * more, whose byte at N is N / 4096 % 251; "mapped" if its pages go though they are mapped. */
#include "say.h"

#define KNOB "/proc/sys/vm/file_cache_idle_seconds"
/* What may be left, in kB. */
#define LEFT (20 << 10)
#define STRIDE (1L << 20)
#define PIECE (16 * PAGE)

static long number(const char *path, const char *name)
{
	static char text[16384];
	int file = MUST(open(path, O_RDONLY));
	ssize_t bytes = MUST(read(file, text, sizeof text - 1));
	close(file);
	text[bytes] = 0;
	char *line = strstr(text, name);
	return line ? atol(line + strlen(name)) : -1;
}

static long meminfo(const char *name)
{
	return number("/proc/meminfo", name);
}

static long clean(void)
{
	return meminfo("\nCached:") - meminfo("\nShmem:");
}

static void set(const char *value)
{
	int file = MUST(open(KNOB, O_WRONLY));
	MUST(write(file, value, strlen(value)));
	close(file);
}

static int is_whole(const unsigned char *bytes, long size)
{
	for (long at = 0; at < size; at += PAGE)
		if (bytes[at] != at / PAGE % 251)
			return 0;
	return 1;
}

/* Looks at every other piece. */
static int is_whole_in_part(const unsigned char *bytes, long size)
{
	for (long at = PIECE; at < size; at += PAGE + at / PAGE % 16 / 15 * PIECE)
		if (bytes[at] != at / PAGE % 251)
			return 0;
	return 1;
}

int main(int count, char **words)
{
	if (count < 2)
		return 2;
	set("0");
	int file = MUST(open(words[1], O_RDONLY));
	long size = MUST(lseek(file, 0, SEEK_END)), kib = size >> 10, before = clean();
	HOLDS(size >= 64 << 20);
	static char buffer[1 << 16];
	for (long at = 0; at < size; at += sizeof buffer)
		MUST(pread(file, buffer, sizeof buffer, at));
	HOLDS(clean() >= before + kib);
	HOLDS(meminfo("\nShmem:") < 4096);
	HOLDS(meminfo("Inactive(file):") + meminfo("Active(file):") == clean() + meminfo("Buffers:"));
	HOLDS(meminfo("Inactive(anon):") < 16 << 10);
	HOLDS(meminfo("MemAvailable:") >= meminfo("MemFree:") + kib - 4096);
	HOLDS(number("/proc/vmstat", "nr_inactive_file ") >= kib / 4);
	HOLDS(number("/proc/zoneinfo", "nr_inactive_file ") >= kib / 4);
	HOLDS(number("/proc/vmstat", "nr_shmem ") < 1024);

	/* The same file as mappings show it. */
	unsigned char *shown = MUST(mmap(0, size, PROT_READ, MAP_SHARED, file, 0));
	HOLDS(is_whole(shown, size));
	unsigned char *own = MUST(mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0));
	own[PAGE] = 252;
	/* Pages that lie scattered when all others have gone. */
	unsigned char *locked = MUST(mmap(0, size, PROT_READ, MAP_PRIVATE, file, 0)), there[4];
	for (long at = 8 * PAGE; at < size; at += STRIDE)
		MUST(mlock(locked + at, 4 * PAGE));
	HOLDS(clean() >= before + kib);

	if (count == 2)
		MUST(munmap(shown, size));
	set("1");
	for (int tries = 0; clean() > LEFT && tries < 15000; tries++)
		sleep_ms(20);
	HOLDS(clean() <= LEFT);
	int compact = MUST(open("/proc/sys/vm/compact_memory", O_WRONLY)), gone = 0;
	MUST(write(compact, "1", 1));
	for (long at = 8 * PAGE; at < size; at += STRIDE) {
		MUST(mincore(locked + at, 4 * PAGE, there));
		gone += !(there[0] && there[1] && there[2] && there[3]);
	}
	HOLDS(gone == 0);
	/* Pages of the root's files stay while they are mapped, also if they are moved. */
	if (count == 2) {
		unsigned char *pieces = MUST(mmap(0, size, PROT_READ, MAP_PRIVATE, file, 0));
		HOLDS(is_whole(pieces, size));
		for (long at = 0; at < size; at += 2 * PIECE)
			MUST(munmap(pieces + at, PIECE));
		for (int tries = 0; clean() > before + kib * 5 / 8 && tries < 15000; tries++)
			sleep_ms(20);
		MUST(write(compact, "1", 1));
		sleep_ms(4000);
		HOLDS(clean() - before >= kib / 2 - 1024);
		HOLDS(is_whole_in_part(pieces, size));
		MUST(munmap(pieces, size));
	}
	HOLDS(own[PAGE] == 252 && own[2 * PAGE] == 2);
	if (count == 2)
		shown = MUST(mmap(0, size, PROT_READ, MAP_SHARED, file, 0));
	HOLDS(is_whole(shown, size));
	TRY(open(KNOB, O_RDONLY) < 0);
	return 0;
}
